package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// Subject is an opened store and what the kit needs to see it from outside. It closes itself by t.Cleanup.
type Subject struct {
	// Store under test, empty at first.
	Store idempo.Store
	// Again is a second handle on the same records, as another process would have; nil: Store is used for both.
	Again idempo.Store
	// Effect does one effect called name in the transaction that ctx carries; Count says how many of that name are
	// committed, read outside of any transaction. Nil: the cases that count effects are skipped.
	Effect func(ctx context.Context, name string) error
	Count  func(ctx context.Context, name string) (int, error)
	// End ends the transaction that ctx carries behind the store's back, as a careless caller would. Nil: skipped.
	End func(ctx context.Context) error
	// Poison makes a statement fail in the transaction that ctx carries, and swallows the error. Nil: skipped.
	Poison func(ctx context.Context)
	// Exec runs a statement of standard SQL (a savepoint) in the transaction that ctx carries. Nil: left out of RunOutbox.
	Exec func(ctx context.Context, statement string) error
	// Statements counts what was sent to the database so far, by anybody. Nil: RunOutbox counts no round trips.
	Statements func() int
	// Own begins a transaction of the caller's own and returns a context that carries it. Nil: skipped.
	Own func(ctx context.Context) (in context.Context, commit, rollback func() error, err error)
	// Transitions returns every change of a record that was committed so far, as a trigger of the test's own logged it. Left
	// says what the store still holds that nobody needs: a connection in use, an open transaction, a lock, an alias without
	// a record; "" is nothing. Nil: skipped.
	Transitions func(ctx context.Context) ([]Transition, error)
	Left        func(ctx context.Context) (string, error)
}

// Caps is what a store can do. What is false is not tested, and printed as skipped.
type Caps struct {
	Tx    bool          // idempo.Transactor and idempo.Joiner: GuardAtomic
	Sweep bool          // idempo.Sweeper; without it the store expires by itself, and may forget an attempt with it
	Take  bool          // idempo.Taker
	Clock time.Duration // resolution of the store's times; 0: a microsecond
	// Steps of the comparison with the model, 2,000 if 0; Seed repeats one, 0 draws it.
	Steps int
	Seed  uint64
	// SingleAlias: a claim holds one digest only, so rotation on a running store is refused.
	SingleAlias bool
	// Lanes: two transactions may be open at once, so that one can find a lane busy (RunInbox). SQLite has one writer.
	Lanes bool
	// Written: an atomic claim may write its row at once, so that a transaction which commits without completing it leaves
	// it pending: in progress until its lease is over, then in doubt.
	Written bool
}

// Run runs every case on stores that open returns: most share one, some open their own.
func Run(t *testing.T, open func(t testing.TB) Subject, c Caps) {
	t.Helper()
	shared := open(t)
	for i, one := range cases() {
		t.Run(one.name, func(t *testing.T) {
			if why := one.skip(c, shared); why != "" {
				t.Skip("skipped by caps: " + why)
			}
			s := shared
			if one.alone {
				s = open(t)
			}
			one.run(newK(t, s, c, i, 2*time.Minute+time.Duration(c.Steps)*100*time.Millisecond)) // a case with many steps has time for them
		})
	}
	t.Run("invariants hold after every case", func(t *testing.T) { CheckInvariants(t, shared.Store) })
	t.Run("[stores/CT47] every change was a step of the table, and nothing is left", func(t *testing.T) { shared.changes(t) })
}

// changes checks what the cases did to the rows, and that nothing of them is held any more.
func (s Subject) changes(t *testing.T) {
	if s.Transitions == nil || s.Left == nil {
		t.Skip("skipped: the subject has no Transitions and Left: it has no triggers")
	}
	for { // what was given up may still be on its way back
		left, err := s.Left(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if left == "" {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("left behind: %s", left)
		case <-time.After(10 * time.Millisecond):
		}
	}
	all, err := s.Transitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	CheckTransitions(t, all)
	t.Logf("%d changes", len(all))
}

// A testCase is one rule, cell or bug.
type testCase struct {
	name  string
	needs need
	alone bool // wants a store of its own
	run   func(k *K)
}

// need is what a case asks of Caps and Subject.
type need int

const (
	needTx need = 1 << iota
	needSweep
	needTake
	needEffect
	needEnd
	needPoison
	needOwn
	needAliases
	needOperator
	needLister
	needScanner
	needCounters
	needWeigher
)

func (c testCase) skip(caps Caps, s Subject) string {
	for _, n := range []struct {
		need need
		has  bool
		why  string
	}{
		{needTx, caps.Tx, "no transactions (Tx)"},
		{needSweep, caps.Sweep, "expires by itself (Sweep)"},
		{needTake, caps.Take, "hands out no due records (Take)"},
		{needAliases, !caps.SingleAlias, "one digest per record (SingleAlias)"},
		{needEffect, s.Effect != nil && s.Count != nil, "Subject has no Effect and Count"},
		{needEnd, s.End != nil, "Subject has no End"},
		{needOperator, operated(s.Store), "not for operators (operator.Changer, Auditor, Counter, Historian)"},
		{needScanner, scanned(s.Store), "does not look through its records (operator.Scanner)"},
		{needCounters, counted(s.Store), "keeps no counters (operator.CounterKeeper)"},
		{needWeigher, weighed(s.Store), "does not say how big it is (operator.Weigher)"},
		{needLister, listed(s.Store), "does not list its records (operator.Lister)"},
		{needPoison, s.Poison != nil, "Subject has no Poison"},
		{needOwn, s.Own != nil, "Subject has no Own"},
	} {
		if c.needs&n.need != 0 && !n.has {
			return n.why
		}
	}
	return ""
}

// cases returns all of them.
func cases() []testCase {
	return slices.Concat(cells(), ruleCases(), keyCases(), resultCases(), issueCases(), aliasCases(), identityCases(), leaseCases(), retentionCases(),
		sweepCases(), takeCases(), operatorCells(), operatorCases(), listCases(), counterCases(), txCases(), raceCases(), modelCases(), engineCases(), faultCases())
}

// K is one case at work: the test, the store, fresh keys, and a clock of its own.
type K struct {
	testing.TB
	Subject
	caps   Caps
	ctx    context.Context
	t0     time.Time // every case begins here, on the clock of its params
	tick   time.Duration
	tenant string
	n      int
}

func newK(t testing.TB, s Subject, c Caps, i int, patience time.Duration) *K {
	ctx, cancel := context.WithTimeout(t.Context(), patience) // a store that hangs fails its case
	t.Cleanup(cancel)
	if s.Again == nil {
		s.Again = s.Store
	}
	tick := max(c.Clock, time.Microsecond)
	return &K{TB: t, Subject: s, caps: c, ctx: ctx, tick: tick, tenant: fmt.Sprintf("kit-%d-%s", i, rand.Text()[:6]),
		// In the future of every real clock, so that nothing that runs beside the kit takes its records away.
		t0: time.Date(2040, 2, 3, 4, 5, 6, 123456000, time.UTC).Truncate(tick)}
}

// key returns a key that no other case has.
func (k *K) key() idempo.Key {
	k.n++
	d := sha256.Sum256(fmt.Append(nil, k.tenant, " ", k.n))
	return idempo.Key{Tenant: k.tenant, Operation: "create-order", ID: string(d[:])}
}

func (k *K) token() (t idempo.Token) {
	rand.Read(t[:])
	return t
}

func digest(s string) []byte {
	d := sha256.Sum256([]byte(s))
	return d[:]
}

const (
	lease     = 30 * time.Second
	retention = 24 * time.Hour
	tombstone = 10 * retention
)

// claim returns the params of a first leased claim of key at t0, with a fresh token.
func (k *K) claim(key idempo.Key) idempo.AcquireParams {
	return idempo.AcquireParams{Key: key, Hash: digest("request"), Recipe: "http-1/k1", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashHold,
		Token: k.token(), Lease: lease, DerivedKey: "6be8f39f-c03c-4adc-b47a-d559a3522431", Surface: "http", Owner: "host-1/4711/v1",
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Snapshot: []byte("snapshot"), Detail: []byte("detail"), Now: k.t0}
}

// again returns p as another caller would send it at the time at: the same request, a token of its own.
func (k *K) again(p idempo.AcquireParams, at time.Time) idempo.AcquireParams {
	p.Token, p.Now = k.token(), at
	p.Owner = "host-2/815/v1"
	return p
}

func answer() idempo.Result {
	return idempo.Result{Status: 201, Header: [][2]string{{"Content-Type", "application/json"}, {"Set-Thing", "a"}, {"Set-Thing", "b"}},
		Body: []byte(`{"id":9}`), Resource: idempo.Resource{Type: "order", ID: "9"}}
}

// done returns the params that complete the claim p of the given attempt at the time at.
func (k *K) done(p idempo.AcquireParams, attempt int64, at time.Time) idempo.CompleteParams {
	r := answer()
	return idempo.CompleteParams{Key: p.Key, Token: p.Token, Won: p, Attempt: attempt, Result: r, Size: int64(len(r.Body)), Kept: true,
		Retention: retention, Tombstone: tombstone, Now: at}
}

func (k *K) release(p idempo.AcquireParams, to idempo.State, at time.Time) idempo.ReleaseParams {
	return idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: to, Note: "connection refused", Retention: retention, Now: at}
}

func (k *K) renew(p idempo.AcquireParams, at time.Time) idempo.RenewParams {
	return idempo.RenewParams{Key: p.Key, Token: p.Token, Lease: lease, Now: at}
}

// ok fails the case on an error.
func (k *K) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("unexpected error: %v", err)
	}
}

// won acquires p and wants it to run.
func (k *K) won(p idempo.AcquireParams) idempo.Record {
	k.Helper()
	a := k.verdict(p, idempo.VerdictRun)
	return a.Record
}

// verdict acquires p and wants v.
func (k *K) verdict(p idempo.AcquireParams, v idempo.Verdict) idempo.Acquired {
	k.Helper()
	a, err := k.Store.Acquire(k.ctx, p)
	if err != nil || a.Verdict != v {
		k.Fatalf("acquire: %q, %v; want %s", a.Verdict, err, v)
	}
	return a
}

// completed claims p and completes it at once.
func (k *K) completed(p idempo.AcquireParams) idempo.Record {
	k.Helper()
	r, err := k.Store.Complete(k.ctx, k.done(p, k.won(p).Attempt, p.Now))
	k.ok(err)
	return r
}

// released claims p and releases it at once.
func (k *K) released(p idempo.AcquireParams, to idempo.State) idempo.Record {
	k.Helper()
	k.won(p)
	r, err := k.Store.Release(k.ctx, k.release(p, to, p.Now))
	k.ok(err)
	return r
}

// look reads key's record at the time at.
func (k *K) look(key idempo.Key, at time.Time) idempo.Record {
	k.Helper()
	r, err := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: key, Now: at})
	k.ok(err)
	return r
}

// state wants key to be in state s at the time at.
func (k *K) state(key idempo.Key, at time.Time, s idempo.State) idempo.Record {
	k.Helper()
	r := k.look(key, at)
	if r.State != s {
		k.Fatalf("state %q, want %q", r.State, s)
	}
	return r
}

// code wants err to be an *idempo.Error of the code.
func (k *K) code(err error, code string) {
	k.Helper()
	if got := codeOf(err); got != code {
		k.Errorf("error %v has code %q, want %q", err, got, code)
	}
}

// same wants two records to be equal, but for Now.
func (k *K) same(what string, got, want idempo.Record) {
	k.Helper()
	if d := diff(got, want); len(d) > 0 {
		k.Errorf("%s: %s", what, strings.Join(d, "; "))
	}
}
