package webhookcheck

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// place is one database, seen from outside of the receivers.
type place struct {
	t     *testing.T
	c     config
	db    *sql.DB
	count string
	left  string
}

func (p *place) query(q string, args ...any) (n int) {
	p.t.Helper()
	if err := p.db.QueryRowContext(p.t.Context(), q, args...).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// want compares the receipts that wait and the committed effects of an id.
func (p *place) want(receipts, effects int, id string) {
	p.t.Helper()
	if got := p.query(p.left); got != receipts {
		p.t.Errorf("%s: %d receipts, want %d", id, got, receipts)
	}
	if got := p.query(p.count, id); got != effects {
		p.t.Errorf("%s: %d effects, want %d", id, got, effects)
	}
}

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

// survivor is a receiver that lives until the end of the test.
func (p *place) survivor() *crashtest.Process {
	s := p.start("")
	p.t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			p.t.Error(err)
		}
	})
	return s
}

func (p *place) ask(s *crashtest.Process, d delivery) (r reply) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	if err := s.Ask(ctx, d, &r); err != nil || r.Err != "" {
		p.t.Fatal(err, r.Err)
	}
	return r
}

// kill sends d to a receiver of its own that is killed at the point.
func (p *place) kill(point string, d delivery) {
	p.t.Helper()
	s := p.start(point)
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	go func() { _ = s.Ask(ctx, d, new(reply)) }() // never answered
	if _, err := s.Await(ctx, point); err != nil {
		p.t.Fatal(point, err)
	}
	if err := s.Kill(); err != nil {
		p.t.Fatal(err)
	}
}

// again sends d as the provider does, until it hears success.
func (p *place) again(s *crashtest.Process, d delivery) {
	p.t.Helper()
	for range 100 {
		switch got := p.ask(s, d).Statuses[0]; got {
		case http.StatusOK:
			return
		case http.StatusServiceUnavailable:
		default:
			p.t.Fatalf("status %d", got)
		}
	}
	p.t.Fatal("it was never taken")
}

func each(t *testing.T, f func(p *place)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		p := &place{t: t, c: config{Store: "sqlite", Place: filepath.Join(t.TempDir(), "hooks.db")},
			count: "select count(*) from effects where what = $1", left: "select count(*) from idempo_receipts where status not in ('done', 'skipped')"}
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
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		f(onPostgres(t))
	})
}

func onPostgres(t *testing.T) *place {
	dsn := os.Getenv("IDEMPO_TEST_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	schema := fmt.Sprintf("hooks_%d_%d", os.Getpid(), time.Now().UnixNano()%1e12)
	p := &place{t: t, c: config{Store: "pgx", Place: dsn, Schema: schema},
		count: `select count(*) from "` + schema + `".effects where what = $1`, left: `select count(*) from "` + schema + `".receipts where status not in ('done', 'skipped')`}
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

func TestKilled(t *testing.T) {
	t.Parallel()
	each(t, func(p *place) {
		alive := p.survivor()
		for _, point := range []string{"received", "before the result", "after the result"} {
			p.t.Run("[webhooks/W3] kill -9 before the commit, "+point+": no receipt; the sender's retry is stored and runs once", func(t *testing.T) {
				for i := range 3 {
					d := delivery{ID: fmt.Sprint(point, i), Body: fmt.Sprint(point, i)}
					p.kill(point, d)
					p.want(0, 0, d.ID)
					p.again(alive, d)
					p.want(1, 0, d.ID)
					p.ask(alive, delivery{Once: true})
					p.want(0, 1, d.ID)
				}
			})
		}
		for _, point := range []string{"committed", "answered"} {
			p.t.Run("[webhooks/W2] kill -9 after the commit, "+point+": the receipt is there and runs; the sender's retry gets success; one effect", func(t *testing.T) {
				for i := range 4 {
					d := delivery{ID: fmt.Sprint(point, i), Body: fmt.Sprint(point, i)}
					p.kill(point, d)
					p.want(1, 0, d.ID)
					if i%2 == 0 { // the event runs before the retry comes, or after it
						p.ask(alive, delivery{Once: true})
						p.want(0, 1, d.ID)
					}
					p.again(alive, d)
					p.ask(alive, delivery{Once: true})
					p.want(0, 1, d.ID)
				}
			})
		}
	})
}

func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	each(t, func(p *place) {
		alive := p.survivor()
		for _, c := range []struct {
			point string
			had   int // effects that were committed when it died
		}{{"handler", 0}, {"effected", 0}, {"before the result", 0}, {"after the result", 0}, {"committed", 1}} {
			p.t.Run("[webhooks/W2] kill -9 of a worker, "+c.point+": what was acknowledged runs, and has one effect", func(t *testing.T) {
				for i := range 3 {
					d := delivery{ID: fmt.Sprint("work ", c.point, i), Body: fmt.Sprint("work ", c.point, i)}
					p.again(alive, d)
					p.kill(c.point, delivery{Once: true})
					if got := p.query(p.count, d.ID); got != c.had {
						t.Errorf("%d effects when it died, want %d", got, c.had)
					}
					p.ask(alive, delivery{Once: true})
					p.want(0, 1, d.ID)
					p.again(alive, d)
					p.ask(alive, delivery{Once: true})
					p.want(0, 1, d.ID)
				}
			})
		}
		p.t.Run("[webhooks/W16] an event that kills the process each time is dead in the end, and others go on", func(t *testing.T) {
			p.again(alive, delivery{ID: "killer", Body: "killer"})
			for range attempts {
				p.kill("killer", delivery{Once: true})
			}
			p.again(alive, delivery{ID: "beside", Body: "beside"})
			got := p.ask(alive, delivery{Once: true})
			if !slices.Equal(got.Parked, []string{"attempts"}) || got.Starts != attempts {
				t.Errorf("%+v", got)
			}
			p.want(1, 0, "killer")
			p.want(1, 1, "beside")
		})
	})
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	each(t, func(p *place) {
		both := []*crashtest.Process{p.survivor(), p.survivor()}
		p.t.Run("[webhooks/W6] 50 identical deliveries at once, over two processes: 50 times success, one receipt, one effect", func(t *testing.T) {
			for i := range 3 {
				d := delivery{ID: fmt.Sprint("d", i), Body: fmt.Sprint(i), Times: 25}
				got := p.together(both, d)
				for _, r := range got {
					if len(r.Statuses) != 25 || slices.ContainsFunc(r.Statuses, func(s int) bool { return s != http.StatusOK }) {
						t.Errorf("%v", r.Statuses)
					}
				}
				p.want(1, 0, d.ID)
				p.together(both, delivery{Once: true})
				p.want(0, 1, d.ID)
			}
		})
		p.t.Run("[webhooks/D3] [webhooks/D4] conflicts and replays from both are parked, few are kept, none runs", func(t *testing.T) {
			p.together(both, delivery{ID: "d0", Body: "other", Times: 10})
			p.together(both, delivery{ID: "replay", Body: "0", Times: 10})
			got := p.ask(both[0], delivery{Once: true})
			slices.Sort(got.Parked)
			if !slices.Equal(got.Parked, []string{"conflict", "suspect-replay"}) {
				t.Errorf("%v", got.Parked)
			}
			p.want(2, 1, "d0")
			p.want(2, 0, "replay")
		})
	})
}

// together asks both at once.
func (p *place) together(both []*crashtest.Process, d delivery) []reply {
	p.t.Helper()
	out := make([]reply, len(both))
	var group sync.WaitGroup
	for i, s := range both {
		group.Go(func() { out[i] = p.ask(s, d) })
	}
	group.Wait()
	return out
}
