package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

// An order that is inserted once, however often the request arrives.
func Example() {
	run := func(ctx context.Context, db *sql.DB, keys []idempo.Secret, body []byte) error {
		if err := postgres.Migrate(ctx, db, postgres.Options{}); err != nil {
			return err
		}
		store, err := postgres.New(ctx, db, postgres.Options{})
		if err != nil {
			return err
		}
		eng, err := idempo.New(store, idempo.Config{DigestKeys: keys, Operations: []idempo.Operation{{Name: "create-order", Guard: idempo.GuardAtomic}}})
		if err != nil {
			return err
		}
		req := idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: "create-order", ID: "o-123"}, Input: [][]byte{body}}
		b, err := eng.Do(ctx, req, func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			_, err := postgres.Tx(ctx).ExecContext(ctx, "insert into orders (body) values ($1)", body)
			return idempo.Result{Status: 201, Body: []byte(`{"ok":true}`)}, err
		})
		fmt.Println(b.Verdict, b.Record.Result.Status)
		return err
	}
	_ = run // it needs a server
}

// The schema as a script for somebody who may change the database.
func ExamplePrint() {
	script, err := postgres.Print(postgres.ScriptOptions{Options: postgres.Options{Schema: "app", Prefix: "idem_"}, Grants: "app_role"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "create schema") || strings.HasPrefix(line, "create table") || strings.HasPrefix(line, "grant usage on schema") {
			fmt.Print(line)
		}
	}
	// Output:
	// create schema if not exists "app";
	// create table "app"."idem_migrations" (
	// create table "app"."idem_records" (
	// create table "app"."idem_attempts" (
	// create table "app"."idem_audit" (
	// create table "app"."idem_meta" (
	// create table "app"."idem_digest_keys" (
	// create table "app"."idem_receipts" (
	// create table "app"."idem_lanes" (
	// create table "app"."idem_counters" (
	// create table "app"."idem_outbox" (
	// create table "app"."idem_outbox_0" partition of "app"."idem_outbox" for values in (0);
	// create table "app"."idem_outbox_1" partition of "app"."idem_outbox" for values in (1);
	// create table "app"."idem_outbox_2" partition of "app"."idem_outbox" for values in (2);
	// create table "app"."idem_outbox_3" partition of "app"."idem_outbox" for values in (3);
	// create table "app"."idem_outbox_4" partition of "app"."idem_outbox" for values in (4);
	// create table "app"."idem_outbox_5" partition of "app"."idem_outbox" for values in (5);
	// create table "app"."idem_outbox_6" partition of "app"."idem_outbox" for values in (6);
	// create table "app"."idem_outbox_7" partition of "app"."idem_outbox" for values in (7);
	// create table "app"."idem_outbox_8" partition of "app"."idem_outbox" for values in (8);
	// create table "app"."idem_outbox_9" partition of "app"."idem_outbox" for values in (9);
	// create table "app"."idem_outbox_10" partition of "app"."idem_outbox" for values in (10);
	// create table "app"."idem_outbox_state" (
	// create table "app"."idem_outbox_groups" (
	// create table "app"."idem_outbox_relays" (
	// create table "app"."idem_outbox_cursors" (
	// create table "app"."idem_outbox_asides" (
	// create table "app"."idem_outbox_discarded" (
	// grant usage on schema "app" to "app_role";
}
