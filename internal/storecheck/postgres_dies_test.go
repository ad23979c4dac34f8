package storecheck

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/internal/storecheck/history"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

// keysInFlight is how many keys are at work when a server dies.
const keysInFlight = 100

// surge is a hundred callers of one server, by every driver, with an effect each that is counted outside.
type surge struct {
	stores  []*pg
	engines []*idempo.Engine
	story   history.History
	tally   crashtest.Tally

	mu  sync.Mutex
	far map[string][]string // the far side: what was done for a derived key; it dedups
}

func newSurge(t *testing.T, dsn string, o postgres.Options) *surge {
	t.Helper()
	s := &surge{far: map[string][]string{}}
	for _, kind := range pgOpeners() {
		at := dsn
		if kind.name == "pgx" {
			at = withParam(t, dsn, "pool_max_conns", "40")
		}
		p := kind.open(t, at, o)
		p.db = openDB(t, "pgx", dsn)
		p.db.SetMaxIdleConns(-1) // who looks has a connection of now, not one that has died since
		e, err := idempo.New(p.Store, idempo.Config{
			DigestKeys: []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}},
			Operations: []idempo.Operation{{Name: "atomic", Guard: idempo.GuardAtomic},
				{Name: "leased", Guard: idempo.GuardLeased, Lease: 5 * time.Second, OnCrash: idempo.OnCrashRerun, DownstreamHonoursKey: true}},
			AcquireTimeout: 20 * time.Second, CompleteBudget: 20 * time.Second, // what is under test is not how long it takes
		})
		must(t, err)
		s.stores, s.engines = append(s.stores, p), append(s.engines, e)
	}
	return s
}

// job is key i: its operation, and the engine that its caller uses.
func (s *surge) job(name string, i int) (operation, key string, at int) {
	return []string{"atomic", "leased"}[i%2], fmt.Sprint(name, " ", i), i % len(s.engines)
}

// once asks for key i until the answer is definite, as a caller does who retries as it is told. in is called by the
// first run of the work, inside of it.
func (s *surge) once(ctx context.Context, name string, i int, in func()) (idempo.Begun, error) {
	operation, key, at := s.job(name, i)
	first := sync.OnceFunc(in)
	for try := 0; ; try++ {
		c := s.story.Begin(key)
		r := request(operation, key)
		r.Wait = time.Second
		b, err := s.engines[at].Do(ctx, r, func(ctx context.Context, claim *idempo.Claim) (idempo.Result, error) {
			content := c.Content
			if operation == "atomic" {
				if err := s.stores[at].effect(ctx, content); err != nil {
					return idempo.Result{}, err
				}
			} else {
				content = s.call(claim.Derive(""), content)
			}
			first()
			return idempo.Result{Status: 200, Body: []byte(content)}, nil
		})
		switch {
		case err == nil && b.Verdict == idempo.VerdictRun:
			c.Run(string(b.Record.Result.Body), b.Record.Attempt)
			return b, nil
		case err == nil:
			c.Replay(string(b.Record.Result.Body))
			return b, nil
		case b.Verdict == idempo.VerdictInProgress || b.Verdict == idempo.VerdictInDoubt:
			c.Wait()
		case idempo.MayHaveHappened(err):
			c.Open()
		default:
			c.Refused()
		}
		s.tally.Add("faults seen by callers", 1)
		pause := time.NewTimer(20 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return b, fmt.Errorf("%s, try %d: %w", key, try, err)
		}
	}
}

// call is the far side, which does one thing for each key it is given.
func (s *surge) call(key, content string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.far[key] = append(s.far[key], content)
	return s.far[key][0]
}

// through brings keysInFlight keys into their work, lets event happen, and wants every caller to get an answer, every
// key that was acknowledged before to be replayed, and one effect for each.
func (s *surge) through(t *testing.T, name string, event func()) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 2*time.Minute)
	defer end()
	before := make([]string, 20)
	for i := range before {
		b, err := s.once(ctx, name+" before", i, func() {})
		must(t, err)
		before[i] = string(b.Record.Result.Body)
	}
	var wg sync.WaitGroup
	var inside atomic.Int64
	all, early, late := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for i := range keysInFlight {
		wg.Go(func() {
			if _, err := s.once(ctx, name, i, func() {
				if inside.Add(1) == keysInFlight {
					close(all)
				}
				if i%4 < 2 {
					<-early
				} else {
					<-late
				}
			}); err != nil {
				t.Error(err)
				return
			}
			s.tally.Add("definite successes", 1)
		})
	}
	select {
	case <-all:
		s.tally.Add("keys in flight", keysInFlight)
	case <-ctx.Done():
		t.Errorf("%d keys in flight", inside.Load())
	}
	close(early) // half of them are at their COMMIT, or about it, when it happens
	event()
	close(late)
	wg.Wait()
	for i := range before {
		b, err := s.once(ctx, name+" before", i, func() { t.Error("an acknowledged key ran again") })
		if err != nil || b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != before[i] {
			t.Errorf("acknowledged before: %q %v %q", b.Verdict, err, b.Record.Result.Body)
		}
		s.tally.Add("replays", 1)
	}
	for i := range keysInFlight {
		if b, err := s.once(ctx, name, i, func() { t.Error("a key ran again") }); err != nil || b.Verdict != idempo.VerdictReplay {
			t.Errorf("asked once more: %q %v", b.Verdict, err)
		}
		s.tally.Add("replays", 1)
		if operation, key, _ := s.job(name, i); operation == "atomic" {
			if n := s.stores[0].count(t, `select count(*) from SCHEMA.effects where what like $1`, key+"|%"); n != 1 {
				t.Errorf("%s: %d effects", key, n)
			}
		}
	}
}

// sound checks the run as a whole; events is how many there were.
func (s *surge) sound(t *testing.T, events int) {
	t.Run("[stores/CT44] one order of events explains every answer", func(t *testing.T) {
		if err := s.story.Check(); err != nil {
			t.Error(err)
		}
	})
	t.Run("[stores/CT46] a run in which too little happened is void", func(t *testing.T) {
		for kind, per := range map[string]int{"keys in flight": keysInFlight, "definite successes": keysInFlight, "replays": keysInFlight + 20, "faults seen by callers": 10} {
			s.tally.Least(kind, per*events)
		}
		if err := s.tally.Void(); err != nil {
			t.Errorf("%v (%s)", err, &s.tally)
		}
		t.Log(&s.tally, s.story.Counts())
	})
}

func TestPostgresServerDies(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, "max_connections=200", "fsync=on")
	s := newSurge(t, server.DSN(), migrated(t, server.DSN(), postgres.Options{}))
	events := map[string]func(){
		"SIGKILL":        func() { server.Kill(t); server.Up(t) },
		"stop fast":      func() { server.Stop(t, "fast"); server.Up(t) },
		"stop immediate": func() { server.Stop(t, "immediate"); server.Up(t) },
		"restart":        func() { server.Restart(t) },
	}
	for name, event := range events {
		t.Run("[stores/CT19] "+name+" with a hundred keys in flight", func(t *testing.T) { s.through(t, name, event) })
	}
	s.sound(t, len(events))
}

func TestPostgresPromoted(t *testing.T) {
	t.Parallel()
	one := pgserver.Start(t, "max_connections=200", "wal_level=replica", "max_wal_senders=4")
	w, dsn := newWire(t, one.DSN())
	two := one.Standby(t, "two")
	o := migrated(t, dsn, postgres.Options{})
	admin := openDB(t, "pgx", one.DSN())
	for _, statement := range []string{`alter system set synchronous_standby_names = 'two'`, `select pg_reload_conf()`} {
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	for sync := ""; sync != "sync"; {
		_ = admin.QueryRowContext(t.Context(), `select sync_state from pg_stat_replication`).Scan(&sync)
		if pauseTest(t) {
			t.Fatal("the standby does not follow")
		}
	}
	must(t, admin.Close())
	s := newSurge(t, dsn, o)
	t.Run("[stores/CT48] the primary dies, its synchronous standby is promoted, the endpoint moves: no acknowledged key is lost", func(t *testing.T) {
		s.through(t, "failover", func() {
			w.Refuse(true)
			one.Kill(t)
			two.Promote(t)
			admin := openDB(t, "pgx", two.DSN())
			for _, statement := range []string{`alter system reset synchronous_standby_names`, `select pg_reload_conf()`} {
				_, err := admin.ExecContext(t.Context(), statement)
				must(t, err)
			}
			w.Move("tcp", two.Addr())
			w.Refuse(false)
		})
	})
	s.sound(t, 1)
}
