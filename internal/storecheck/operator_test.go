package storecheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// testOperator is the contract of package operator.
func testOperator(t *testing.T, open func(t *testing.T) operated) {
	t.Run("[operations/OP18] filters intersect, on the effective state", func(t *testing.T) { t.Parallel(); filters(t, open(t)) })
	t.Run("[operations/OP18] a list skips nothing and repeats nothing while rows come and go", func(t *testing.T) { t.Parallel(); paging(t, open(t)) })
	t.Run("[operations/OP19] a reference finds its record, also by an alias; earlier attempts are kept", func(t *testing.T) { t.Parallel(); history(t, open(t)) })
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

func all(t *testing.T, s operator.Lister, p operator.FindParams) (out []idempo.Record) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page.Records...)
		if page.Next == "" {
			return out
		}
		if p.Limit > 0 && len(page.Records) != p.Limit {
			t.Errorf("a page of %d that is not the last, limit %d", len(page.Records), p.Limit)
		}
		p.After = page.Next
	}
}

func filters(t *testing.T, s operated) {
	with := func(id, tenant, operation, surface string) idempo.AcquireParams {
		p := leased(id)
		p.Key.Tenant, p.Key.Operation, p.Surface = tenant, operation, surface
		return p
	}
	done := idempo.Result{Status: 201, Body: []byte("secret body"), Resource: idempo.Resource{Type: "charge", ID: "ch_1"}}
	failed := idempo.Result{Status: 402, Failing: true}
	claimed(t, s, with("1", "a", "pay", "http"), &done)
	claimed(t, s, with("2", "a", "ship", "http"), &failed)
	claimed(t, s, with("3", "b", "pay", "run"), &done)
	pending := claimed(t, s, with("4", "b", "ship", "http"), nil)
	soon := time.Now().Add(30 * time.Minute) // the leases are over, the results are not
	late := time.Now().Add(90 * time.Minute) // the results are, the tombstones are not
	count := func(want int, p operator.FindParams) {
		t.Helper()
		got := all(t, s, p)
		if len(got) != want {
			t.Errorf("%+v finds %d, want %d", p, len(got), want)
		}
		for _, r := range got {
			if r.Result.Body != nil || r.Snapshot != nil {
				t.Error("a list carries bodies")
			}
		}
	}
	count(4, operator.FindParams{})
	count(2, operator.FindParams{Tenant: "a"})
	count(0, operator.FindParams{Tenant: "c"})
	count(2, operator.FindParams{Operation: "pay"})
	count(1, operator.FindParams{Operation: "pay", Tenant: "b"})
	count(1, operator.FindParams{Operation: "pay", Surface: "run", Tenant: "b", Outcome: operator.OutcomeCompleted})
	count(0, operator.FindParams{Operation: "pay", Surface: "run", Tenant: "a"})
	count(1, operator.FindParams{Outcome: operator.OutcomeFailing})
	count(1, operator.FindParams{State: idempo.StatePending})
	count(0, operator.FindParams{State: idempo.StatePending, Now: soon})
	count(1, operator.FindParams{State: idempo.StateInDoubt, Now: soon})
	count(0, operator.FindParams{State: idempo.StateInDoubt})
	count(3, operator.FindParams{State: idempo.StateExpired, Now: late})
	count(0, operator.FindParams{State: idempo.StateExpired, Now: soon})
	count(2, operator.FindParams{Reference: done.Resource})
	count(4, operator.FindParams{OlderThan: 20 * time.Minute, Now: soon})
	count(0, operator.FindParams{OlderThan: 40 * time.Minute, Now: soon})
	count(4, operator.FindParams{NewerThan: 40 * time.Minute, Now: soon})
	count(1, operator.FindParams{Ref: pending.Ref()})
	count(0, operator.FindParams{Ref: pending.Ref(), Tenant: "a"})
	for _, p := range []operator.FindParams{{State: "done"}, {After: "x"}, {Ref: "k_x"}} {
		if _, err := s.List(t.Context(), p); err == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
}

func paging(t *testing.T, s operated) {
	done := idempo.Result{Status: 200}
	const stay = 700 // more than a batch of any store
	want := map[string]bool{}
	for i := range stay {
		p := leased(fmt.Sprintf("stay %d", i))
		p.Key.Tenant = fmt.Sprintf("t%d", i%3)
		claimed(t, s, p, &done)
		want[p.Key.Ref()] = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			p := leased(fmt.Sprintf("come and go %d", i))
			p.Key.Tenant = fmt.Sprintf("t%d", i%3)
			if _, err := s.Acquire(ctx, p); err != nil {
				return
			}
			_, _ = s.Release(ctx, idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateIssued})
		}
	})
	defer wg.Wait()
	defer cancel()
	for _, limit := range []int{1, 7, 100, 0} {
		if limit == 1 && testing.Short() {
			continue
		}
		seen := map[string]int{}
		for _, r := range all(t, s, operator.FindParams{Limit: limit}) {
			seen[r.Ref()]++
		}
		for ref := range want {
			if seen[ref] != 1 {
				t.Fatalf("limit %d: %s is listed %d times", limit, ref, seen[ref])
			}
		}
	}
	got := all(t, s, operator.FindParams{State: idempo.StateCompleted, Tenant: "t1", Limit: 50})
	if len(got) != 233 {
		t.Errorf("%d of tenant t1, want 233", len(got))
	}
	if !slices.IsSortedFunc(got, func(a, b idempo.Record) int { return strings.Compare(a.Key.ID, b.Key.ID) }) {
		t.Error("not in the order of the key")
	}
}

func history(t *testing.T, s operated) {
	p := leased("main")
	p.Aliases = []string{leased("alias").Key.ID}
	first := claimed(t, s, p, nil)
	if _, err := s.Release(t.Context(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateFailed, Note: "refused", Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p.Token = newToken("second")
	p.Owner = "other"
	claimed(t, s, p, &idempo.Result{Status: 200})
	for _, ref := range []string{p.Key.Ref(), leased("alias").Key.Ref()} {
		if got := all(t, s, operator.FindParams{Ref: ref}); len(got) != 1 || got[0].Attempt != 2 || got[0].Owner != "other" || got[0].Ref() != p.Key.Ref() {
			t.Errorf("%s finds %+v", ref, got)
		}
	}
	attempts, err := s.Attempts(t.Context(), p.Key)
	if err != nil || len(attempts) != 1 {
		t.Fatalf("%d earlier attempts, %v", len(attempts), err)
	}
	a := attempts[0]
	if a.Attempt != 1 || a.State != idempo.StateFailed || a.Owner != first.Owner || !a.ClaimedAt.Equal(first.ClaimedAt) || a.Note != "refused" || a.Surface != "task" {
		t.Errorf("%+v", a)
	}
	if none, err := s.Attempts(t.Context(), leased("unknown").Key); err != nil || len(none) != 0 {
		t.Errorf("an unknown key has %d attempts, %v", len(none), err)
	}
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
