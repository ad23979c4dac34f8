package storecheck

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

func TestPostgresOutboxDebezium(t *testing.T) {
	t.Parallel()
	t.Run("the publication works, and each column is there", func(t *testing.T) {
		t.Parallel()
		s := pgserver.Start(t, "wal_level=logical")
		p := openSQL(t, "pgx", s.DSN(), migrated(t, s.DSN(), postgres.Options{}))
		f := &functions{t: t, db: openDB(t, "pgx", s.DSN()), o: p.o}
		c, err := p.Debezium(t.Context(), "debezium")
		must(t, err)
		for line := range strings.SplitSeq(c.Publication, ";\n") {
			_, err := f.db.ExecContext(t.Context(), line)
			must(t, err)
		}
		must(t, appendOne(t.Context(), newBox(t, p.Store), "k", "body"))
		if got := f.one(`select string_agg(tablename, ',') from pg_publication_tables where pubname = 'debezium'`); got != "outbox" {
			t.Errorf("published are %q, want the root alone", got)
		}
		changes := f.one(`select count(*)::text from pg_logical_slot_peek_binary_changes('debezium', null, null, 'proto_version', '1', 'publication_names', 'debezium')`)
		if changes == "0" {
			t.Error("an append is not in the slot")
		}
		var config map[string]string
		must(t, json.Unmarshal(c.Config, &config))
		for key, want := range map[string]string{
			"transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter", "transforms.outbox.table.field.event.id": "id",
			"transforms.outbox.table.field.event.key": "key", "transforms.outbox.table.field.payload": "payload", "transforms.outbox.route.by.field": "topic",
			"transforms.outbox.table.field.event.timestamp": "recorded_at", "value.converter": "io.debezium.converters.BinaryDataConverter",
			"slot.name": "debezium", "table.include.list": p.o.Schema + ".outbox", "binary.handling.mode": "bytes",
		} {
			if config[key] != want {
				t.Errorf("%s is %q, want %q", key, config[key], want)
			}
		}
		for part := range strings.SplitSeq(config["transforms.outbox.table.fields.additional.placement"], ",") {
			column, _, _ := strings.Cut(part, ":")
			kind := f.one(`select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'idempo.outbox'::regclass and attname = $1`, column)
			if kind == "" {
				t.Errorf("column %s is not in the table", column)
			}
		}
		for column, want := range map[string]string{"id": "uuid", "key": "text", "payload": "bytea", "topic": "text", "recorded_at": "timestamp without time zone"} {
			if kind := f.one(`select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'idempo.outbox'::regclass and attname = $1`, column); kind != want {
				t.Errorf("column %s is %s, want %s", column, kind, want)
			}
		}
	})
	t.Run("encrypted payloads and strange slots are refused with the reason", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		if _, err := o.p.Debezium(t.Context(), `x"; drop`); codeOf(err) != "misuse" {
			t.Errorf("a strange slot: %v", err)
		}
		log, _ := o.p.Outbox()
		must(t, o.p.InTx(t.Context(), func(ctx context.Context) error {
			e := outbox.Event{ID: outbox.IDFor("s", "1"), Source: "/s", Tenant: "default", Topic: "t", Type: "T", Payload: []byte("sealed")}
			_, err := log.Append(ctx, outbox.AppendParams{Rows: []outbox.Row{{Event: e, Sealed: "e1"}}})
			return err
		}))
		if _, err := o.p.Debezium(t.Context(), "debezium"); err == nil || !strings.Contains(err.Error(), "encrypted") {
			t.Errorf("encrypted payloads: %v", err)
		}
	})
}
