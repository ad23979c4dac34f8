package inboxcheck

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// place is one database, seen from outside of the consumers.
type place struct {
	t     *testing.T
	c     config
	db    *sql.DB
	count string
	left  string
	kills int
}

func (p *place) query(q string, args ...any) (n int) {
	p.t.Helper()
	if err := p.db.QueryRowContext(p.t.Context(), q, args...).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// effects wants n committed effects of an id.
func (p *place) effects(id string, n int) {
	p.t.Helper()
	if got := p.query(p.count, id); got != n {
		p.t.Errorf("%s had %d effects, want %d", id, got, n)
	}
}

// receipts wants n receipts to be there.
func (p *place) receipts(n int) {
	p.t.Helper()
	if got := p.query(p.left); got != n {
		p.t.Errorf("%d receipts, want %d", got, n)
	}
}

// dead counts the receipts that wait for a person.
func (p *place) dead() int { return p.query(p.left + " where status = 'dead'") }

// start starts a consumer that dies at halt, if that is not "".
func (p *place) start(halt string) *crashtest.Process {
	p.t.Helper()
	c := p.c
	c.Halt = halt
	text, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := crashtest.Start(os.Args[0], serviceEnv+"="+string(text))
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// survivor is a consumer that lives until the end of the test.
func (p *place) survivor() *crashtest.Process {
	s := p.start("")
	p.t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			p.t.Error(err)
		}
	})
	return s
}

// kill delivers d to a consumer of its own that is killed at the point. It reports whether the consumer came there; else
// the answer is the broker's.
func (p *place) kill(point string, d delivery) (reply, bool) {
	p.t.Helper()
	s := p.start(point)
	answer := make(chan reply, 1)
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	at, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		var r reply
		if s.Ask(ctx, d, &r) == nil {
			answer <- r
			stop()
		}
	}()
	_, err := s.Await(at, point)
	if err == nil {
		p.kills++
		if err := s.Kill(); err != nil {
			p.t.Fatal(err)
		}
		return reply{}, true
	}
	select {
	case r := <-answer:
		if err := s.Stop(); err != nil {
			p.t.Fatal(err)
		}
		return r, false
	default:
		p.t.Fatal(err)
	}
	return reply{}, false
}

// strike is kill for a broker that delivers again what is still running elsewhere: the server may not have seen yet that the
// process before is dead.
func (p *place) strike(point string, d delivery) (r reply, died bool) {
	p.t.Helper()
	for range 200 {
		if r, died = p.kill(point, d); died || !slices.ContainsFunc(r.Outcomes, func(o inbox.Outcome) bool { return o.Status == inbox.StatusRunning }) {
			return r, died
		}
	}
	p.t.Fatalf("still running: %+v", r)
	return r, died
}

// until delivers d again and again until every message of it is acknowledged, as a broker would.
func (p *place) until(s *crashtest.Process, d delivery) []inbox.Outcome {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	for {
		var r reply
		if err := s.Ask(ctx, d, &r); err != nil {
			p.t.Fatal(err, r)
		}
		acked := r.Err == ""
		for _, o := range r.Outcomes {
			acked = acked && o.Ack
		}
		if acked {
			return r.Outcomes
		}
		d.Attempt++
	}
}

// each runs f on every store.
func each(t *testing.T, f func(p *place)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		p := &place{t: t, c: config{Store: "sqlite", Place: filepath.Join(t.TempDir(), "inbox.db")},
			count: "select count(*) from effects where what = $1", left: "select count(*) from idempo_receipts"}
		store, err := sqlite.Open(t.Context(), "sqlite", p.c.Place, sqlite.Options{})
		if err == nil {
			err = store.Close()
		}
		if err == nil {
			p.db, err = sql.Open("sqlite", "file:"+p.c.Place+"?_pragma=busy_timeout(20000)")
		}
		if err == nil {
			_, err = p.db.ExecContext(t.Context(), "create table effects (what text not null)")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.db.Close() })
		f(p)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		f(onMySQL(t))
	})
	for _, store := range []string{"pgx", "idempgx"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			f(onPostgres(t, store))
		})
	}
}

func onPostgres(t *testing.T, store string) *place {
	dsn := os.Getenv("IDEMPO_TEST_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	schema := fmt.Sprintf("inbox_%d_%d", os.Getpid(), time.Now().UnixNano()%1e12)
	p := &place{t: t, c: config{Store: store, Place: dsn, Schema: schema},
		count: `select count(*) from "` + schema + `".effects where what = $1`, left: `select count(*) from "` + schema + `".receipts`}
	db, err := sql.Open("pgx", dsn)
	if err == nil {
		err = db.PingContext(t.Context())
	}
	if err != nil {
		text := "no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one with: docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	db.SetMaxOpenConns(2)
	p.db = db
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), `drop schema if exists "`+schema+`" cascade`); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	if err := postgres.Migrate(t.Context(), db, postgres.Options{Schema: schema}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `create table "`+schema+`".effects (what text not null)`); err != nil {
		t.Fatal(err)
	}
	return p
}

const rounds = 6 // kills at each step, on each store

func TestKilled(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I2] killed before the commit, or between commit and acknowledgement: redelivered, one effect", func(t *testing.T) {
		each(t, func(p *place) {
			alive := p.survivor()
			for _, point := range []string{"handler", "effected", "handled"} {
				for i := range rounds {
					id := fmt.Sprint(point, i)
					if _, died := p.kill(point, delivery{IDs: []string{id}, Attempt: i % 2}); !died {
						p.t.Fatalf("it never came to %s", point)
					}
					want := inbox.StatusDone
					if point == "handled" {
						want = inbox.StatusDuplicate
						p.effects(id, 1)
					} else {
						p.effects(id, 0)
					}
					if outs := p.until(alive, delivery{IDs: []string{id}, Attempt: (i % 2) * 2}); outs[0].Status != want {
						p.t.Errorf("%s: %+v", id, outs)
					}
					p.effects(id, 1)
				}
			}
			p.receipts(0)
			if p.kills != 3*rounds {
				p.t.Errorf("void: %d kills", p.kills)
			}
		})
	})
}

func TestKiller(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I15] a message that kills its process at each start: MaxAttempts starts, then dead; others of its batch once", func(t *testing.T) {
		each(t, func(p *place) {
			for _, counts := range []bool{true, false} {
				if !counts { // the same id again, as a new message
					p.forget()
				}
				p.kills = 0
				var last reply
				for n := 1; n <= maxAttempts+2; n++ {
					d := delivery{IDs: []string{"killer"}, Attempt: n}
					if !counts {
						d.Attempt = 0
					}
					var died bool
					if last, died = p.strike("killer", d); !died {
						break
					}
				}
				if p.kills != maxAttempts || len(last.Outcomes) != 1 || last.Outcomes[0].Status != inbox.StatusDead || !last.Outcomes[0].Ack {
					p.t.Errorf("counts %v: %d starts, %+v", counts, p.kills, last)
				}
				p.effects("killer", 0)
				p.receipts(1)
			}
			p.forget()
			p.kills = 0
			var last reply
			for n := 1; n <= maxAttempts+2; n++ {
				var died bool
				if last, died = p.strike("killer", delivery{IDs: []string{"a", "killer", "b"}, Attempt: n}); !died {
					break
				}
			}
			if p.kills != maxAttempts || len(last.Outcomes) != 3 || last.Outcomes[1].Status != inbox.StatusDead {
				p.t.Errorf("batch: %d starts, %+v", p.kills, last)
			}
			p.effects("a", 1)
			p.effects("b", 1)
			p.effects("killer", 0)
		})
	})
	t.Run("[messages/I15] a stored message that kills its worker each time is dead in the end", func(t *testing.T) {
		each(t, func(p *place) {
			p.c.Lease = time.Microsecond
			p.until(p.survivor(), delivery{IDs: []string{"killer"}, Put: true})
			var last reply
			for range 200 { // a worker may come before the server has seen that the one before is dead, and find nothing
				if last, _ = p.kill("killer", delivery{Once: true}); p.kills > maxAttempts || p.dead() == 1 {
					break
				}
			}
			if p.kills != maxAttempts || last.Err != "" {
				p.t.Errorf("%d starts, %+v", p.kills, last)
			}
			p.effects("killer", 0)
			p.receipts(1)
		})
	})
}

// forget discards every receipt.
func (p *place) forget() {
	p.t.Helper()
	table := "idempo_receipts"
	if p.c.Schema != "" {
		table = `"` + p.c.Schema + `".receipts`
	}
	if _, err := p.db.ExecContext(p.t.Context(), "delete from "+table); err != nil {
		p.t.Fatal(err)
	}
}

func TestKilledLeased(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		policy idempo.OnCrash
		point  string
		want   inbox.Status
		calls  int
	}{
		{idempo.OnCrashHold, "handler", inbox.StatusInDoubt, 0},
		{idempo.OnCrashHold, "effected", inbox.StatusInDoubt, 1},
		{idempo.OnCrashProbe, "effected", inbox.StatusDuplicate, 1},
		{idempo.OnCrashProbe, "handler", inbox.StatusDone, 1},
		{idempo.OnCrashRerun, "effected", inbox.StatusDone, 2},
	} {
		t.Run(fmt.Sprintf("[messages/I33] leased, %s, killed at %s: %s", one.policy, one.point, one.want), func(t *testing.T) {
			t.Parallel()
			p := onPostgres(t, "idempgx")
			ledger, err := crashtest.OpenLedger()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ledger.Close() }()
			p.c.OnCrash, p.c.Ledger, p.c.Lease = one.policy, ledger.URL(), time.Second
			if _, died := p.kill(one.point, delivery{IDs: []string{"m"}, Attempt: 1}); !died {
				t.Fatal("it lives")
			}
			if outs := p.until(p.survivor(), delivery{IDs: []string{"m"}, Attempt: 2}); outs[0].Status != one.want {
				t.Errorf("%+v", outs)
			}
			calls := ledger.Calls("m")
			if len(calls) != one.calls || len(calls) == 2 && (calls[0] != calls[1] || calls[0] == "") || len(ledger.Effects("m")) != min(one.calls, 1) {
				t.Errorf("calls %q, effects %q", calls, ledger.Effects("m"))
			}
		})
	}
}
