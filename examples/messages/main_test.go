package main

import (
	"bytes"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

func TestMessagesAreBilledOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "messages.db")
	deliveries := `{"id":"m-1","body":"order 81","attempt":1}
{"id":"m-1","body":"order 81","attempt":2}
{"id":"m-1","body":"order 99"}
{"id":"m-2"}
{"id":"","body":"who is it"}
{"id":"m-3","body":"order 83"}
`
	want := []string{"m-1: done, acknowledge: true", "m-1: duplicate, acknowledge: true", "m-1: parked, acknowledge: true", "m-2: dead, acknowledge: true",
		": parked, acknowledge: true", "m-3: done, acknowledge: true", "0 tried again", ""}
	again := strings.ReplaceAll(strings.Join(want, "\n"), "done", "duplicate")
	for _, want := range []string{strings.Join(want, "\n"), again} { // the second run is a broker that delivers everything again
		var out bytes.Buffer
		if err := consume(t.Context(), path, []byte("0123456789abcdef0123456789abcdef"), strings.NewReader(deliveries), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), want)
		}
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM bills").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d bills, %v", n, err)
	}
}
