package server_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

func TestStoreOverTheNetwork(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC76] a database over the network without verified TLS is a warning at start", func(t *testing.T) {
		t.Parallel()
		for url, warned := range map[string]bool{
			"postgres://u:canary@db.invalid/shop": true, "postgres://u:canary@db.invalid/shop?sslmode=verify-full": false, "postgres://u:canary@127.0.0.1:1/shop": false,
		} {
			var log bytes.Buffer
			c := settings(t, t.TempDir(), "store: {postgres: \""+url+"\"}\n", config.Override{Path: "upstream", Value: "http://127.0.0.1:9"})
			if err := server.New(c, server.Options{Log: &log}).Start(t.Context()); err == nil {
				t.Fatal("it started")
			}
			if got := strings.Contains(log.String(), "without verified TLS"); got != warned {
				t.Errorf("%s: warned %v\n%s", url, got, log.String())
			}
			if strings.Contains(log.String(), "canary") {
				t.Error(log.String())
			}
		}
	})
}
