package database_test

import (
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
)

func TestUnverified(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"postgres://db.example/shop": true, "postgres://10.0.0.7/shop?sslmode=require": true, "postgres://db.example/shop?sslmode=disable": true,
		"postgres://db.example/shop?sslmode=verify-full": false, "postgres://db.example/shop?sslmode=verify-ca": false,
		"postgres://localhost/shop": false, "postgres://127.0.0.1:5432/shop": false, "postgres://[::1]/shop": false, "postgres:///shop?host=/run/postgresql": false,
		"postgres://localhost/shop?host=db.example": true, "postgres://127.0.0.1.example/shop": true, "": false,
	} {
		if _, got := database.Unverified(config.Store{Postgres: config.Secret(url)}); got != want {
			t.Errorf("[security/SEC76] %s: %v", url, got)
		}
	}
	for url, want := range map[string]bool{
		"mysql://db.example/shop": true, "mysql://db.example/shop?tls=skip-verify": true, "mysql://db.example/shop?tls=preferred": true,
		"mysql://db.example/shop?tls=true": false, "mysql://127.0.0.1:3306/shop": false,
	} {
		if _, got := database.Unverified(config.Store{MySQL: config.Secret(url)}); got != want {
			t.Errorf("[security/SEC76] %s: %v", url, got)
		}
	}
}
