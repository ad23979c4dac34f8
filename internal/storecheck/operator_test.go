package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// operated is a store with everything an operator asks.
type operated interface {
	idempo.Store
	operator.Lister
	operator.Historian
	operator.DigestKeeper
}

func TestSQLiteOperator(t *testing.T) {
	t.Parallel()
	testOperator(t, func(t *testing.T) operated {
		s, _ := sqliteStore(t, sqlite.Options{})
		return s
	})
}

func TestPostgresOperator(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			testOperator(t, func(t *testing.T) operated {
				return o.open(t, dsn, migrated(t, dsn, postgres.Options{})).Store
			})
		})
	}
}

// testOperator is what the kit has no case for.
func testOperator(t *testing.T, open func(t *testing.T) operated) {
	t.Run("[operations/OP39] [security/SEC32] [security/SEC39] digest keys that do not fit are named", func(t *testing.T) { t.Parallel(); keeping(t, open(t)) })
}

// claimed wins a key and completes it unless result is nil.
func claimed(t *testing.T, s idempo.Store, p idempo.AcquireParams, result *idempo.Result) idempo.Record {
	t.Helper()
	a, err := s.Acquire(t.Context(), p)
	if err != nil || a.Verdict != idempo.VerdictRun {
		t.Fatalf("acquire: %v %v", a.Verdict, err)
	}
	if result == nil {
		return a.Record
	}
	r, err := s.Complete(t.Context(), idempo.CompleteParams{Key: p.Key, Token: p.Token, Won: p, Attempt: a.Record.Attempt, Result: *result,
		Size: int64(len(result.Body)), Kept: true, Retention: time.Hour, Tombstone: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keeping(t *testing.T, s operated) {
	keep := func(made bool, ids ...string) operator.DigestKeys {
		t.Helper()
		p := operator.DigestKeysParams{Made: made}
		for _, id := range ids {
			p.Keys = append(p.Keys, operator.DigestKey{ID: strings.TrimSuffix(id, "!"), Mark: "mark of " + id})
		}
		found, err := s.KeepDigestKeys(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	want := func(got operator.DigestKeys, text string) {
		t.Helper()
		if s := fmt.Sprint(got); s != text {
			t.Errorf("%s, want %s", s, text)
		}
	}
	const fine = "{[] [] []}"
	// Of several that start at once, each with a key it has just made, one is served.
	var wg sync.WaitGroup
	var mu sync.Mutex
	served := 0
	for i := range 5 {
		wg.Go(func() {
			found, err := s.KeepDigestKeys(context.Background(), operator.DigestKeysParams{Made: true, Keys: []operator.DigestKey{{ID: fmt.Sprintf("made-%d", i), Mark: "m"}}})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if found.OK() {
				served++
			}
		})
	}
	wg.Wait()
	if served != 1 {
		t.Fatalf("%d processes made the key of one store", served)
	}
	// Nothing stands under it: a configured list takes its place.
	want(keep(false, "d_1"), fine)
	for i, recipe := range []string{"input1;k=d_1", "http1;k=d_1;x", "http1;k=d_10;x", "http1;k=dx1;x"} {
		p := leased(fmt.Sprint(i))
		p.Recipe = recipe
		claimed(t, s, p, &idempo.Result{Status: 200})
	}
	want(keep(false, "d_1"), fine)
	want(keep(false, "d2"), "{[{d_1 2}] [] []}")
	want(keep(false, "d_1!"), "{[] [d_1] []}")
	want(keep(true, "made-9"), "{[] [] [d_1]}")
	want(keep(false, "d2", "d_1"), fine)
	want(keep(false, "d_1"), fine) // nothing was made with d2
	want(keep(false, "d3", "d_1"), fine)
	if _, err := s.Acquire(t.Context(), leased("still works")); err != nil && !errors.Is(err, idempo.ErrUnavailable) {
		t.Error(err)
	}
}
