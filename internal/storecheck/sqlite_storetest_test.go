package storecheck

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/sqlite"
	"github.com/idempo/idempo/storetest"
)

// sqliteSubject is a store and a second one on the same file, as another process would have it.
func sqliteSubject(t testing.TB) storetest.Subject {
	s, file := sqliteStore(t, sqlite.Options{})
	raw := sqliteRaw(t, file)
	if _, err := raw.ExecContext(t.Context(), "CREATE TABLE effects (name TEXT NOT NULL) STRICT; "+
		"CREATE TABLE poison (n INTEGER) STRICT; "+
		"CREATE TRIGGER poisoned BEFORE INSERT ON poison BEGIN SELECT RAISE(ROLLBACK, 'poison'); END; "+sqliteTransitions); err != nil {
		t.Fatal(err)
	}
	own := sqliteHandle(t, file, goodDSN)
	return storetest.Subject{
		Store: listed{s, file},
		Effect: func(ctx context.Context, name string) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO effects VALUES (?)", name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			err = raw.QueryRowContext(ctx, "SELECT count(*) FROM effects WHERE name = ?", name).Scan(&n)
			return n, err
		},
		End:    func(ctx context.Context) error { return sqlite.Tx(ctx).Rollback() },
		Poison: func(ctx context.Context) { _, _ = sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO poison VALUES (1)") },
		Own: func(ctx context.Context) (context.Context, func() error, func() error, error) {
			tx, err := own.BeginTx(context.WithoutCancel(ctx), nil)
			if err != nil {
				return nil, nil, nil, err
			}
			return sqlite.WithTx(ctx, tx), tx.Commit, tx.Rollback, nil
		},
		Transitions: func(ctx context.Context) ([]storetest.Transition, error) { return logged(ctx, raw, "transitions") },
		Left: func(ctx context.Context) (string, error) {
			var aliases int
			err := raw.QueryRowContext(ctx, fmt.Sprintf(orphans, "idempo_records")).Scan(&aliases)
			if err == nil { // nobody has the write lock
				_, err = raw.ExecContext(ctx, "BEGIN IMMEDIATE; ROLLBACK")
			}
			return leftovers(0, aliases, own.Stats().InUse), err
		},
	}
}

func TestSQLiteKit(t *testing.T) {
	t.Parallel()
	storetest.Run(t, sqliteSubject, kitCaps(t))
}

// TestSQLiteKitOnHandle is the kit on a store that works on the caller's own handle.
func TestSQLiteKitOnHandle(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Subject {
		sub := sqliteSubject(t)
		db := sqliteHandle(t, sub.Store.(listed).file, goodDSN)
		s, err := sqlite.New(t.Context(), db, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		sub.Store = listed{s, ""}
		sub.Poison = nil // without the guard of Open it is tx_ended: what became of it cannot be known
		return sub
	}, kitCaps(t))
}

// listed gives the kit every record of a store, for its invariants.
type listed struct {
	*sqlite.Store
	file string
}

// All yields the records as the operator's list shows them.
func (l listed) All() iter.Seq[idempo.Record] {
	return func(yield func(idempo.Record) bool) {
		var p operator.FindParams
		for {
			page, err := l.List(context.Background(), p)
			if err != nil {
				panic(err)
			}
			for _, r := range page.Records {
				if !yield(r) {
					return
				}
			}
			if p.After = page.Next; p.After == "" {
				return
			}
		}
	}
}
