package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

// An order that is inserted once, however often the request arrives.
func Example() {
	run := func(ctx context.Context, db *sql.DB, keys []idempo.Secret, body []byte) error {
		if err := mysql.Migrate(ctx, db, mysql.Options{}); err != nil {
			return err
		}
		store, err := mysql.New(ctx, db, mysql.Options{})
		if err != nil {
			return err
		}
		eng, err := idempo.New(store, idempo.Config{DigestKeys: keys, Operations: []idempo.Operation{{Name: "create-order", Guard: idempo.GuardAtomic}}})
		if err != nil {
			return err
		}
		req := idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: "create-order", ID: "o-123"}, Input: [][]byte{body}}
		b, err := eng.Do(ctx, req, func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			_, err := mysql.Tx(ctx).ExecContext(ctx, "insert into orders (body) values (?)", body)
			return idempo.Result{Status: 201, Body: []byte(`{"ok":true}`)}, err
		})
		fmt.Println(b.Verdict, b.Record.Result.Status)
		return err
	}
	_ = run // it needs a server
}

// The schema as a script for somebody who may change the database.
func ExamplePrint() {
	script, err := mysql.Print(mysql.ScriptOptions{Options: mysql.Options{Prefix: "idem_"}, Grants: "app@10.0.0.1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "create table") || strings.Contains(line, "idem_meta` to") {
			fmt.Print(line)
		}
	}
	// Output:
	// create table if not exists `idem_migrations` (
	// create table if not exists `idem_records` (
	// create table if not exists `idem_attempts` (
	// create table if not exists `idem_audit` (
	// create table if not exists `idem_meta` (
	// create table if not exists `idem_digest_keys` (
	// create table if not exists `idem_receipts` (
	// create table if not exists `idem_lanes` (
	// create table if not exists `idem_counters` (
	// grant select, update on `idem_meta` to 'app'@'10.0.0.1';
}
