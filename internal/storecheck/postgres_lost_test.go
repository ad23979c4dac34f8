package storecheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

// lostRun is a store whose database loses commits, and what its work did.
type lostRun struct {
	p       *pg
	eng     *idempo.Engine
	outside ledger
	other   *pg // as another process, which hears of the failover by itself; may be nil
}

func newLostRun(t *testing.T, p *pg) *lostRun {
	return &lostRun{p: p, eng: sharedEngine(t, p)}
}

// do is one call: its effect is counted outside for leased operations, in the database for atomic ones.
func (r *lostRun) do(ctx context.Context, op, id string) (idempo.Begun, error) {
	return r.eng.Do(ctx, intentOf(op, id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
		if op == "order" {
			return idempo.Result{Body: []byte(id)}, r.p.exec(ctx, fmt.Sprintf(`insert into "%s".done (what) values ('%s')`, r.p.o.Schema, id))
		}
		r.outside.add(id)
		return idempo.Result{Body: []byte(id)}, nil
	})
}

// want calls until there is an answer, which must be the verdict.
func (r *lostRun) want(t *testing.T, op, id string, verdict idempo.Verdict) {
	t.Helper()
	for {
		b, err := r.do(t.Context(), op, id)
		if errors.Is(err, idempo.ErrUnavailable) && !pauseTest(t) {
			continue // connections of the server that is gone
		}
		if b.Verdict != verdict {
			t.Errorf("%s: %q, %v; want %s", id, b.Verdict, err, verdict)
		}
		return
	}
}

// effects wants so many effects of id.
func (r *lostRun) effects(t *testing.T, op, id string, want int) {
	t.Helper()
	got := r.outside.count(id)
	if op == "order" {
		got = r.p.count(t, `select count(*) from SCHEMA.done where what = $1`, id)
	}
	if got != want {
		t.Errorf("%s: %d effects, want %d", id, got, want)
	}
}

// lose plays what PG10 says of a database whose commits since keep() are lost by lose(), which leads the stores to what is left.
// back leads them to the old primary, if there is one.
func (r *lostRun) play(t *testing.T, lose, back func()) {
	for _, op := range []string{"order", "send", "repeat"} {
		for _, n := range []string{"1", "2", "3"} {
			r.want(t, op, "lost-"+op+n, idempo.VerdictRun)
			r.effects(t, op, "lost-"+op+n, 1)
		}
	}
	held := pgClaim(idempo.GuardLeased)
	old := pgAcquire(t, t.Context(), r.p, held, idempo.VerdictRun)
	running, err := r.eng.Begin(t.Context(), intentOf("send", "running"))
	must(t, err)
	lose()
	r.p.db = openDB(t, "pgx", r.p.dsn)

	t.Run("[stores/PG10] without a new epoch a lost leased key runs again: a second effect is possible", func(t *testing.T) {
		r.want(t, "send", "lost-send1", idempo.VerdictRun)
		r.effects(t, "send", "lost-send1", 2)
	})
	t.Run("[stores/PG10] atomic: effect and record were lost together, once again makes one", func(t *testing.T) {
		r.want(t, "order", "lost-order1", idempo.VerdictRun)
		r.want(t, "order", "lost-order1", idempo.VerdictReplay)
		r.effects(t, "order", "lost-order1", 1)
	})
	t.Run("[stores/PG10] with a new epoch a lost leased key is in doubt, and never runs blindly", func(t *testing.T) {
		_, err := r.p.AdvanceEpoch(t.Context(), time.Hour)
		must(t, err)
		for _, id := range []string{"lost-send2", "lost-send3"} {
			r.want(t, "send", id, idempo.VerdictInDoubt)
			r.want(t, "send", id, idempo.VerdictInDoubt)
			r.effects(t, "send", id, 1)
		}
		r.want(t, "repeat", "lost-repeat2", idempo.VerdictRun) // the operation says that twice is as once
		r.want(t, "order", "lost-order2", idempo.VerdictRun)
		r.effects(t, "order", "lost-order2", 1)
	})
	t.Run("[stores/PG10] a claim that ran through it is lost", func(t *testing.T) {
		if err := running.Claim.Complete(t.Context(), idempo.Result{}); !errors.Is(err, idempo.ErrLeaseLost) {
			t.Errorf("%v", err)
		}
	})
	t.Run("[stores/PG10] what was kept is believed", func(t *testing.T) {
		for _, op := range []string{"order", "send"} {
			r.want(t, op, "kept-"+op, idempo.VerdictReplay)
			r.effects(t, op, "kept-"+op, 1)
		}
	})
	if back == nil {
		return
	}
	for { // it works on the new primary
		c := pgClaim(idempo.GuardLeased)
		c.OnCrash = idempo.OnCrashRerun
		if a, err := r.other.Acquire(t.Context(), c); err == nil && a.Verdict == idempo.VerdictRun || pauseTest(t) {
			break
		}
	}
	t.Run("[stores/PG10, CT20] split brain: a store that has seen the new epoch refuses the old primary", func(t *testing.T) {
		back()
		for _, op := range []string{"order", "send", "repeat"} {
			id := "old-" + op
			for n := range 20 { // past the connections that are cut
				b, err := r.do(t.Context(), op, id)
				if !errors.Is(err, idempo.ErrUnavailable) {
					t.Errorf("%q, %v; want unavailable", b.Verdict, err)
				}
				if err != nil && strings.Contains(fmt.Sprintf("%+v", err), "old primary") {
					break
				} else if n == 19 {
					t.Errorf("it never says why: %v", err)
				}
			}
			r.effects(t, op, id, 0)
		}
		for range 20 {
			if a, err := r.other.Acquire(t.Context(), pgClaim(idempo.GuardLeased)); !errors.Is(err, idempo.ErrUnavailable) {
				t.Errorf("another process: %q, %v", a.Verdict, err)
			}
		}
		for range 5 { // a claim that was made there
			if _, err := r.p.Renew(t.Context(), idempo.RenewParams{Key: held.Key, Token: held.Token, Lease: time.Minute}); !errors.Is(err, idempo.ErrUnavailable) {
				t.Errorf("renewal: %v", err)
			}
			if _, err := r.p.Complete(t.Context(), pgResult(held, old, "x")); !errors.Is(err, idempo.ErrUnavailable) {
				t.Errorf("completion: %v", err)
			}
			if rec, err := r.eng.Lookup(t.Context(), intentOf("send", "kept-send").Key); !errors.Is(err, idempo.ErrUnavailable) {
				t.Errorf("read there: %s, %v", rec.State, err)
			}
		}
	})
}

// keep does what is to survive.
func (r *lostRun) keep(t *testing.T) {
	t.Helper()
	for _, op := range []string{"order", "send"} {
		r.want(t, op, "kept-"+op, idempo.VerdictRun)
	}
}

func TestPostgresLostCommits(t *testing.T) {
	t.Parallel()
	for _, o := range []pgOpener{pgOpeners()[0], pgOpeners()[2]} {
		t.Run("[stores/CT20] promotion of an asynchronous standby, "+o.name, func(t *testing.T) {
			t.Parallel()
			pair := startPair(t, false)
			r := newLostRun(t, o.open(t, pair.dsn, pair.o))
			r.other = o.open(t, pair.dsn, pair.o)
			r.keep(t)
			pair.caughtUp(t)
			pair.lag(t)
			r.play(t, func() { pair.fail(t) }, func() {
				pair.a.Up(t)
				pair.endpoint.move(pair.a)
				r.p.db = openDB(t, "pgx", pair.a.DSN())
			})
		})
	}
	t.Run("[stores/CT21] restore of an older backup", func(t *testing.T) {
		t.Parallel()
		a := pgserver.Start(t)
		endpoint, dsn := newEndpoint(t, a)
		db := openDB(t, "pgx", a.DSN())
		o := postgres.Options{Schema: "idempo"}
		must(t, postgres.Migrate(t.Context(), db, o))
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(pgEffects, "idempo"))
		must(t, err)
		r := newLostRun(t, openPgx(t, dsn, o))
		r.keep(t)
		backup := a.Backup(t)
		r.play(t, func() {
			a.Stop(t, "fast")
			backup.Up(t)
			endpoint.move(backup)
		}, nil)
	})
}

func TestPostgresDumpAndRestore(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	o := migrated(t, dsn, postgres.Options{})
	r := newLostRun(t, openPgx(t, dsn, o))
	r.keep(t)
	name := schemaName(t, dsn)
	_, err := openDB(t, "pgx", dsn).ExecContext(t.Context(), `create database "`+name+`" template template0`)
	must(t, err)
	t.Cleanup(func() { _, _ = openCleanup(dsn, `drop database if exists "`+name+`" with (force)`) })
	dump := exec.CommandContext(t.Context(), pgserver.Program(t, "pg_dump"), "--schema", o.Schema, dsn)
	script, err := dump.Output()
	must(t, err)
	u, err := url.Parse(dsn)
	must(t, err)
	u.Path = "/" + name
	load := exec.CommandContext(t.Context(), pgserver.Program(t, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", u.String())
	load.Stdin = strings.NewReader(string(script))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("[stores/CT21, PG10] a logical import works at once: replays, new keys, new epochs", func(t *testing.T) {
		restored := newLostRun(t, openPgx(t, u.String(), o))
		restored.outside.add("kept-send")
		for _, op := range []string{"order", "send"} {
			restored.want(t, op, "kept-"+op, idempo.VerdictReplay)
			restored.effects(t, op, "kept-"+op, 1)
			restored.want(t, op, "new-"+op, idempo.VerdictRun)
		}
		_, err := restored.p.AdvanceEpoch(t.Context(), time.Hour)
		must(t, err)
		restored.want(t, "send", "lost", idempo.VerdictInDoubt)
	})
}

func TestPostgresLaggingStandby(t *testing.T) {
	t.Parallel()
	pair := startPair(t, false)
	pair.caughtUp(t)
	db := openDB(t, "pgx", pair.b.DSN())
	_, err := db.ExecContext(t.Context(), `select pg_wal_replay_pause()`)
	must(t, err)
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run("[stores/CT21, PG7] the standby is first in the DSN and lags: it is never read, "+driver, func(t *testing.T) {
			_, standby, _ := net.SplitHostPort(pair.b.Addr())
			_, primary, _ := net.SplitHostPort(pair.a.Addr())
			both := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%s,%s user=postgres dbname=postgres sslmode=disable target_session_attrs=read-write", standby, primary)
			p := openSQL(t, driver, pair.a.DSN(), pair.o)
			s, err := postgres.New(t.Context(), openDB(t, driver, both), pair.o)
			must(t, err)
			p.Store = s
			r := newLostRun(t, p)
			for n := range 20 {
				for _, op := range []string{"order", "send"} {
					id := fmt.Sprint(driver, op, n)
					r.want(t, op, id, idempo.VerdictRun)
					r.want(t, op, id, idempo.VerdictReplay) // right at once: the primary was read
					r.effects(t, op, id, 1)
				}
			}
		})
	}
	t.Run("[stores/CT21] connections that come to lead to a standby are refused, the work is not run", func(t *testing.T) {
		r := newLostRun(t, openPgx(t, pair.dsn, pair.o))
		r.want(t, "send", "before", idempo.VerdictRun)
		pair.endpoint.move(pair.b)
		for _, op := range []string{"order", "send"} {
			for range 5 {
				if b, err := r.do(t.Context(), op, "on-standby"); !errors.Is(err, idempo.ErrUnavailable) {
					t.Errorf("%s: %q, %v", op, b.Verdict, err)
				}
			}
			r.effects(t, op, "on-standby", 0)
		}
	})
}
