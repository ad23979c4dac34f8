package storecheck

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

// skewed is a store whose server has another clock: a function of that name stands before the server's own in the search
// path of its connections, so that the shipped SQL reads it. Application and server disagree by what is set.
type skewed struct {
	*pg
	schema string
}

func openSkewed(t *testing.T, kind pgOpener) *skewed {
	t.Helper()
	dsn := postgresDSN(t)
	o := migrated(t, dsn, postgres.Options{})
	s := &skewed{schema: schemaName(t, dsn)}
	db := openDB(t, "pgx", dsn)
	_, err := db.ExecContext(t.Context(), fmt.Sprintf(`create schema "%[1]s";
create table "%[1]s".clock (by interval not null);
insert into "%[1]s".clock values ('0');
create function "%[1]s".clock_timestamp() returns timestamptz language sql volatile
  as $$ select pg_catalog.clock_timestamp() + by from "%[1]s".clock $$`, s.schema))
	must(t, err)
	s.pg = kind.open(t, withParam(t, dsn, "search_path", s.schema+",pg_catalog"), o)
	s.db = openDB(t, "pgx", dsn)
	return s
}

// set moves the server's clock so far from the real one.
func (s *skewed) set(t *testing.T, by time.Duration) {
	t.Helper()
	_, err := s.db.ExecContext(context.WithoutCancel(t.Context()), fmt.Sprintf(`update "%s".clock set by = '%d microseconds'`, s.schema, by.Microseconds()))
	must(t, err)
}

func (s *skewed) engine(t *testing.T, c idempo.OnCrash) *idempo.Engine {
	t.Helper()
	e, err := idempo.New(s.Store, idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations: []idempo.Operation{{Name: "atomic", Guard: idempo.GuardAtomic},
			{Name: "leased", Guard: idempo.GuardLeased, OnCrash: c, DownstreamHonoursKey: c == idempo.OnCrashRerun}},
		AcquireTimeout: 20 * time.Second,
	})
	must(t, err)
	return e
}

func TestPostgresClocks(t *testing.T) {
	t.Parallel()
	for _, kind := range pgOpeners() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := openSkewed(t, kind)
			for _, off := range []time.Duration{time.Hour, -time.Hour} {
				t.Run(fmt.Sprintf("[stores/CT27] the application's clock is off by %v: leases and expiry go by the store's", -off), func(t *testing.T) { s.apart(t, off) })
			}
			for _, step := range []time.Duration{30 * time.Second, -30 * time.Second} {
				for _, policy := range []idempo.OnCrash{idempo.OnCrashHold, idempo.OnCrashRerun} {
					t.Run(fmt.Sprintf("[stores/CT27] %s: the store's clock steps by %v in a running lease: at most one effect, or in doubt", policy, step),
						func(t *testing.T) { s.stepped(t, step, policy) })
				}
				t.Run(fmt.Sprintf("[stores/CT27] atomic: the store's clock steps by %v in the work: one effect", step), func(t *testing.T) { s.steppedAtomic(t, step) })
			}
			t.Run("[stores/CT27, L1] a transaction that began long before asks for the time now, not for that of its start", func(t *testing.T) {
				s.set(t, 0)
				c := pgClaim(idempo.GuardLeased)
				_, err := s.Complete(t.Context(), pgResult(c, pgAcquire(t, t.Context(), s.Store, c, idempo.VerdictRun), "body"))
				must(t, err)
				own, _, rollback, err := s.begin(t.Context())
				must(t, err)
				again := pgAgain(c)
				again.Guard = idempo.GuardAtomic
				pgAcquire(t, own, s.Store, again, idempo.VerdictReplay)
				s.set(t, 61*time.Minute) // as if it had waited so long for a lock
				pgAcquire(t, own, s.Store, pgAgain(again), idempo.VerdictExpired)
				must(t, rollback())
			})
		})
	}
}

// apart: nobody renews, and the store's clock is moved on.
func (s *skewed) apart(t *testing.T, off time.Duration) {
	s.set(t, off)
	c := pgClaim(idempo.GuardLeased)
	c.OnCrash = idempo.OnCrashRerun
	a := pgAcquire(t, t.Context(), s.Store, c, idempo.VerdictRun)
	if rest := time.Until(a.Record.LeaseUntil) - off; rest < 20*time.Second || rest > 31*time.Second {
		t.Errorf("a lease of 30 s ends in %v of the store's time", rest)
	}
	pgAcquire(t, t.Context(), s.Store, pgAgain(c), idempo.VerdictInProgress)
	s.set(t, off+15*time.Second)
	pgAcquire(t, t.Context(), s.Store, pgAgain(c), idempo.VerdictInProgress)
	s.set(t, off+31*time.Second)
	next := pgAgain(c)
	a = pgAcquire(t, t.Context(), s.Store, next, idempo.VerdictRun)
	if a.Record.Attempt != 2 {
		t.Errorf("attempt %d", a.Record.Attempt)
	}
	_, err := s.Complete(t.Context(), pgResult(next, a, "body"))
	must(t, err)
	s.set(t, off+59*time.Minute)
	pgAcquire(t, t.Context(), s.Store, pgAgain(c), idempo.VerdictReplay)
	s.set(t, off+62*time.Minute)
	pgAcquire(t, t.Context(), s.Store, pgAgain(c), idempo.VerdictExpired)
	s.set(t, off+123*time.Minute)
	pgAcquire(t, t.Context(), s.Store, pgAgain(c), idempo.VerdictRun)
}

// stepped: an engine is at work when the store's clock steps, another asks, and then the work ends.
func (s *skewed) stepped(t *testing.T, step time.Duration, policy idempo.OnCrash) {
	s.set(t, 0)
	one, two := s.engine(t, policy), s.engine(t, policy)
	id := fmt.Sprint(policy, step)
	effects := map[string]int{} // by derived key: of a rerun the far side does it once
	do := func(c *idempo.Claim) { effects[c.Derive("")] = 1 }
	work := func(_ context.Context, c *idempo.Claim) (idempo.Result, error) {
		do(c)
		s.set(t, step)
		b, err := two.Do(t.Context(), request("leased", id), func(_ context.Context, c *idempo.Claim) (idempo.Result, error) {
			do(c)
			return idempo.Result{Status: 200, Body: []byte("one thing")}, nil
		})
		switch {
		case step < 0 && b.Verdict != idempo.VerdictInProgress:
			t.Errorf("the clock went back, and the other gets %q %v", b.Verdict, err)
		case step > 0 && policy == idempo.OnCrashHold && b.Verdict != idempo.VerdictInProgress && b.Verdict != idempo.VerdictInDoubt:
			t.Errorf("the lease is over, and the other gets %q %v", b.Verdict, err)
		}
		return idempo.Result{Status: 200, Body: []byte("one thing")}, nil
	}
	b, err := one.Do(t.Context(), request("leased", id), work)
	if err != nil && !errors.Is(err, idempo.ErrLeaseLost) {
		t.Errorf("the owner: %q %v", b.Verdict, err)
	}
	for _, e := range []*idempo.Engine{one, two} {
		if b, err := e.Do(t.Context(), request("leased", id), nothing); err != nil || b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != "one thing" {
			t.Errorf("afterwards: %q %v", b.Verdict, err)
		}
	}
	if len(effects) != 1 {
		t.Errorf("%d effects", len(effects))
	}
}

func (s *skewed) steppedAtomic(t *testing.T, step time.Duration) {
	s.set(t, 0)
	e := s.engine(t, idempo.OnCrashHold)
	id := fmt.Sprint("step ", step)
	for _, want := range []idempo.Verdict{idempo.VerdictRun, idempo.VerdictReplay} {
		b, err := e.Do(t.Context(), request("atomic", id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			s.set(t, step)
			return idempo.Result{Status: 200}, s.effect(ctx, id)
		})
		if err != nil || b.Verdict != want {
			t.Errorf("%q %v, want %s", b.Verdict, err, want)
		}
	}
	if n := s.count(t, `select count(*) from SCHEMA.effects where what = $1`, id); n != 1 {
		t.Errorf("%d effects", n)
	}
}
