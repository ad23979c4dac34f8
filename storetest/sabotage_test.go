package storetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// saboteur is a memstore with some rule broken: each function, where set, stands in a method's place.
type saboteur struct {
	*memstore.Store
	acquire  func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error)
	renew    func(ctx context.Context, p idempo.RenewParams) (idempo.Record, error)
	complete func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error)
	release  func(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error)
	lookup   func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error)
	inTx     func(ctx context.Context, fn func(context.Context) error) error
	sweep    func(ctx context.Context, batch int) (int, error)
	take     func(ctx context.Context, p idempo.TakeParams) ([]idempo.Record, error)
	joined   func(ctx context.Context) (bool, bool, error)

	change  func(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error)
	audit   func(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error)
	count   func(ctx context.Context, p operator.CountParams) (operator.Stats, error)
	history func([]idempo.Record) []idempo.Record
	page    func(p operator.FindParams, page *operator.Page)
	scan    func(got *operator.Scanned)
}

func (s *saboteur) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	if s.acquire != nil {
		return s.acquire(ctx, p)
	}
	return s.Store.Acquire(ctx, p)
}

func (s *saboteur) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	if s.renew != nil {
		return s.renew(ctx, p)
	}
	return s.Store.Renew(ctx, p)
}

func (s *saboteur) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	if s.complete != nil {
		return s.complete(ctx, p)
	}
	return s.Store.Complete(ctx, p)
}

func (s *saboteur) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	if s.release != nil {
		return s.release(ctx, p)
	}
	return s.Store.Release(ctx, p)
}

func (s *saboteur) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	if s.lookup != nil {
		return s.lookup(ctx, p)
	}
	return s.Store.Lookup(ctx, p)
}

func (s *saboteur) InTx(ctx context.Context, fn func(context.Context) error) error {
	if s.inTx != nil {
		return s.inTx(ctx, fn)
	}
	return s.Store.InTx(ctx, fn)
}

func (s *saboteur) Sweep(ctx context.Context, batch int) (int, error) {
	if s.sweep != nil {
		return s.sweep(ctx, batch)
	}
	return s.Store.Sweep(ctx, batch)
}

func (s *saboteur) Take(ctx context.Context, p idempo.TakeParams) ([]idempo.Record, error) {
	if s.take != nil {
		return s.take(ctx, p)
	}
	return s.Store.Take(ctx, p)
}

func (s *saboteur) Joined(ctx context.Context) (bool, bool, error) {
	if s.joined != nil {
		return s.joined(ctx)
	}
	return s.Store.Joined(ctx)
}

// is returns the record that p's key or aliases have now.
func (s *saboteur) is(p idempo.AcquireParams) idempo.Record {
	r, _ := s.Store.Lookup(context.Background(), idempo.LookupParams{Key: p.Key, Aliases: p.Aliases, Now: p.Now})
	return r
}

func (s *saboteur) at(k idempo.Key, now time.Time) idempo.Record {
	return s.is(idempo.AcquireParams{Key: k, Now: now})
}

// params breaks Acquire by changing what it is asked for.
func (s *saboteur) params(change func(p *idempo.AcquireParams)) {
	s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
		change(&p)
		return s.Store.Acquire(ctx, p)
	}
}

// answers breaks Acquire by changing what it says.
func (s *saboteur) answers(change func(p idempo.AcquireParams, a *idempo.Acquired)) {
	s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
		a, err := s.Store.Acquire(ctx, p)
		if err == nil {
			change(p, &a)
		}
		return a, err
	}
}

// completes breaks Complete by changing what it is asked for.
func (s *saboteur) completes(change func(p *idempo.CompleteParams)) {
	s.complete = func(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
		change(&p)
		return s.Store.Complete(ctx, p)
	}
}

// reads breaks every record that is read.
func (s *saboteur) reads(change func(r *idempo.Record)) {
	s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
		r, err := s.Store.Lookup(ctx, p)
		change(&r)
		return r, err
	}
}

// keys breaks what a key is taken for; records show the key they were asked by.
func (s *saboteur) keys(fold func(k idempo.Key) idempo.Key) {
	s.acquire = func(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
		asked := p.Key
		p.Key = fold(p.Key)
		a, err := s.Store.Acquire(ctx, p)
		a.Record.Key = asked
		return a, err
	}
	s.lookup = func(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
		asked := p.Key
		p.Key = fold(p.Key)
		r, err := s.Store.Lookup(ctx, p)
		r.Key = asked
		return r, err
	}
}

// A sabotage is a store with one rule broken and the case that must notice.
type sabotage struct {
	rule   string
	caught string // a part of the case's name
	break_ func(s *saboteur, sub *Subject)
}

func TestKitAgainstItself(t *testing.T) {
	t.Parallel()
	all := sabotages()
	t.Run("[stores/CT41] at least 40 sabotaged stores", func(t *testing.T) {
		if len(all) < 40 {
			t.Errorf("%d", len(all))
		}
	})
	caps := Caps{Tx: true, Sweep: true, Take: true, Steps: 600, Seed: 1}
	seen := map[string]bool{}
	for _, s := range all {
		if seen[s.rule] {
			t.Errorf("%q is there twice", s.rule)
		}
		seen[s.rule] = true
		t.Run("[stores/CT41] caught: "+s.rule, func(t *testing.T) {
			t.Parallel()
			found := 0
			for i, c := range cases() {
				if !strings.Contains(c.name, s.caught) || strings.HasPrefix(c.name, "engine: ") != strings.HasPrefix(s.caught, "engine: ") {
					continue
				}
				found++
				if bad := play(t, c, i, caps, nil); len(bad) > 0 {
					t.Errorf("the sound store fails %q: %s", c.name, bad[0])
				}
				bad := play(t, c, i, caps, s.break_)
				if len(bad) == 0 {
					t.Errorf("the sabotaged store passes %q", c.name)
				}
			}
			if found != 1 {
				t.Errorf("%d cases are named like %q, want one", found, s.caught)
			}
		})
	}
}

// play runs one case on a fresh store, broken where spoil is not nil, and returns what it complained about.
func play(t *testing.T, c testCase, i int, caps Caps, spoil func(s *saboteur, sub *Subject)) []string {
	r := &recorder{TB: t}
	sub := Memory(r)
	patience := time.Minute
	if spoil != nil {
		s := &saboteur{Store: sub.Store.(*memstore.Store)}
		sub.Store = s
		spoil(s, &sub)
		patience = 2 * time.Second
	}
	if why := c.skip(caps, sub); why != "" {
		return nil
	}
	done := make(chan struct{})
	go func() { // a case may end its goroutine
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				r.Errorf("panic: %v", v)
			}
		}()
		c.run(newK(r, sub, caps, i, patience))
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad
}

// recorder is a testing.TB that notes failures instead of failing.
type recorder struct {
	testing.TB
	mu  sync.Mutex
	bad []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = append(r.bad, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprintln(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprintln(args...)) }

func TestNamesOfCases(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Errorf("two cases are named %q", c.name)
		}
		seen[c.name] = true
	}
	if len(seen) < 200 {
		t.Errorf("%d cases", len(seen))
	}
}

func TestSkipsAreSaid(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT40] a case left out by Caps says why", func(t *testing.T) {
		full := Subject{Effect: func(context.Context, string) error { return nil }, Count: func(context.Context, string) (int, error) { return 0, nil }}
		count := func(caps Caps, s Subject) (n int) {
			for _, c := range cases() {
				if c.skip(caps, s) != "" {
					n++
				}
			}
			return n
		}
		all := Caps{Tx: true, Sweep: true, Take: true}
		least := count(all, full)
		for name, caps := range map[string]Caps{"Tx": {Sweep: true, Take: true}, "Sweep": {Tx: true, Take: true}, "Take": {Tx: true, Sweep: true},
			"SingleAlias": {Tx: true, Sweep: true, Take: true, SingleAlias: true}} {
			if got := count(caps, full); got <= least {
				t.Errorf("without %s %d cases are left out, with all %d", name, got, least)
			}
		}
		if got := count(all, Subject{}); got <= least {
			t.Errorf("without effects %d cases are left out", got)
		}
	})
}

func TestBrokenRecords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	base := idempo.Record{Key: idempo.Key{Tenant: "t", Operation: "o", ID: pad("id")}, Generation: 1, Attempt: 1, CreatedAt: now, ChangedAt: now}
	with := func(s idempo.State, f func(r *idempo.Record)) idempo.Record {
		r := base
		r.State, r.Token = s, idempo.Token{1}
		switch s {
		case idempo.StateIssued:
			r.Token, r.ExpiresAt, r.IssuedUntil = idempo.Token{}, now, now
		case idempo.StatePending:
			r.LeaseUntil = now
		case idempo.StateInDoubt:
			r.StartedAt = now
		case idempo.StateFailed:
			r.ExpiresAt = now
		case idempo.StateCompleted:
			r.CompletedAt, r.ExpiresAt, r.BodyKept = now, now, true
		}
		if f != nil {
			f(&r)
		}
		return r
	}
	for _, s := range []idempo.State{idempo.StateIssued, idempo.StatePending, idempo.StateInDoubt, idempo.StateFailed, idempo.StateCompleted, idempo.StateExpired} {
		if bad := broken(with(s, nil)); len(bad) > 0 {
			t.Errorf("a sound %s record: %v", s, bad)
		}
	}
	for _, r := range []idempo.Record{
		with("lost", nil), with(idempo.StatePending, func(r *idempo.Record) { r.Key.ID = "clear" }), with(idempo.StatePending, func(r *idempo.Record) { r.Generation = 0 }),
		with(idempo.StatePending, func(r *idempo.Record) { r.LeaseUntil = time.Time{} }), with(idempo.StatePending, func(r *idempo.Record) { r.Token = idempo.Token{} }),
		with(idempo.StatePending, func(r *idempo.Record) { r.Attempt = 0 }), with(idempo.StatePending, func(r *idempo.Record) { r.ExpiresAt = now }),
		with(idempo.StatePending, func(r *idempo.Record) { r.Result.Status = 200 }), with(idempo.StateInDoubt, func(r *idempo.Record) { r.StartedAt = time.Time{} }),
		with(idempo.StateInDoubt, func(r *idempo.Record) { r.ExpiresAt = now }), with(idempo.StateFailed, func(r *idempo.Record) { r.ExpiresAt = time.Time{} }),
		with(idempo.StateFailed, func(r *idempo.Record) { r.Result.Body = []byte{} }), with(idempo.StateCompleted, func(r *idempo.Record) { r.CompletedAt = time.Time{} }),
		with(idempo.StateCompleted, func(r *idempo.Record) { r.GoneAt = now.Add(-1) }), with(idempo.StateCompleted, func(r *idempo.Record) { r.Attempt = 0 }),
		with(idempo.StateCompleted, func(r *idempo.Record) { r.DueAt = now }), with(idempo.StateCompleted, func(r *idempo.Record) { r.BodyKept, r.Result.Body = false, []byte("x") }),
		with(idempo.StateExpired, func(r *idempo.Record) { r.Note = "x" }), with(idempo.StateExpired, func(r *idempo.Record) { r.Snapshot = []byte("x") }),
		with(idempo.StateIssued, func(r *idempo.Record) { r.Hash = []byte("x") }), with(idempo.StateIssued, func(r *idempo.Record) { r.IssuedUntil = time.Time{} }),
		with(idempo.StateFailed, func(r *idempo.Record) { r.ChangedAt = now.Add(-1) }),
	} {
		if len(broken(r)) == 0 {
			t.Errorf("nothing is wrong with %+v", r)
		}
	}
}
