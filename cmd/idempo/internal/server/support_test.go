package server_test

import (
	"database/sql"
	"testing"
)

// newer makes the schema of an SQLite store look like one of a later release.
func newer(t *testing.T, file string) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`INSERT INTO idempo_migrations (version, name, sha256, applied_at, applied_by) VALUES (99, 'later', 'x', 0, 'test')`); err != nil {
		t.Fatal(err)
	}
}
