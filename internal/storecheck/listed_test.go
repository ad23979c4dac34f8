package storecheck

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// A row that cannot be read stands in lists as what it is, and in nobody's way.
func TestGarbledLists(t *testing.T) {
	t.Parallel()
	type listing interface {
		operated
		operator.Scanner
		operator.Changer
		operator.Auditor
	}
	garbled := func(t *testing.T, s listing, db *sql.DB, update string) {
		t.Helper()
		var keys []string
		for i := range 3 {
			p := leased(fmt.Sprint("listed ", i))
			keys = append(keys, claimed(t, s, p, &idempo.Result{Status: 201, Header: [][2]string{{"A", "b"}}, Resource: idempo.Resource{Type: "order", ID: "9"}}).Ref())
		}
		bad := leased("listed 1").Key
		res, err := db.ExecContext(t.Context(), update, []byte(bad.ID))
		must(t, err)
		if n, err := res.RowsAffected(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		page, err := s.List(t.Context(), operator.FindParams{})
		must(t, err)
		found := map[string]idempo.State{}
		for _, r := range page.Records {
			found[r.Ref()] = r.State
		}
		if len(found) != 3 || found[keys[1]] != operator.StateUnreadable || found[keys[0]] != idempo.StateCompleted || found[keys[2]] != idempo.StateCompleted {
			t.Errorf("%v of %v", found, keys)
		}
		for _, p := range []operator.FindParams{{Ref: keys[1]}, {Tenant: bad.Tenant}, {Limit: 1}} {
			if _, err := s.List(t.Context(), p); err != nil {
				t.Errorf("%+v: %v", p, err)
			}
		}
		scanned, err := s.Scan(t.Context(), operator.ScanParams{Resource: idempo.Resource{Type: "order", ID: "9"}})
		if err != nil || slices.ContainsFunc(scanned.Records, func(r idempo.Record) bool { return r.Ref() == keys[1] }) || len(scanned.Records) != 2 {
			t.Errorf("%d scanned, %v", len(scanned.Records), err)
		}
		if _, err := s.Lookup(t.Context(), idempo.LookupParams{Key: bad}); codeOf(err) != "record_unreadable" {
			t.Error(err)
		}
		eng, err := idempo.New(s, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
		must(t, err)
		ops, err := operator.New(s, operator.Config{Engine: eng})
		must(t, err)
		got, err := ops.Bulk(t.Context(), operator.BulkParams{By: operator.Principal{Actor: "ann", Role: operator.RoleAdmin}, Do: operator.Change{Action: operator.ActionPurge}, Reason: "a bulk beside a garbled row", Confirm: "purge"})
		if err != nil || got.OK != 2 || got.Skipped != 1 || got.Failed != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	const broken = "[security/SEC27] a row that cannot be read is listed as unreadable, and the rest of the page stays"
	dsn := postgresDSN(t)
	for _, kind := range pgOpeners() {
		t.Run(broken+", PostgreSQL by "+kind.name, func(t *testing.T) {
			t.Parallel()
			p := kind.open(t, dsn, migrated(t, dsn, postgres.Options{}))
			garbled(t, p.Store, p.db, fmt.Sprintf(`update "%s".records set response_headers = 'garbage' where idempotency_key = $1`, p.o.Schema))
		})
	}
	t.Run(broken+", MySQL", func(t *testing.T) {
		t.Parallel()
		m := newMySQL(t, mysql.Options{}, nil)
		garbled(t, m.Store, m.db, "update idempo_records set response_headers = 'garbage' where idempotency_key = ?")
	})
	t.Run(broken+", SQLite", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		garbled(t, s, sqliteRaw(t, file), "UPDATE idempo_records SET response_headers = CAST('garbage' AS BLOB) WHERE idempotency_key = ?")
	})
}
