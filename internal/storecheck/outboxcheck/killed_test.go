package outboxcheck

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

// points are every step of a relay.
var points = [...]string{"before lease", "leased", "read", "before send", "sent", "acknowledged", "before cursor", "cursor", "before set aside", "set aside", "taken", "handed over"}

// world is one outbox, its writers and its relays.
type world struct {
	t     *testing.T
	c     config
	db    *sql.DB
	box   *outbox.Outbox
	tally crashtest.Tally

	mu        sync.Mutex
	committed map[string][]string // ids by key, in order
	poisoned  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := cmp.Or(os.Getenv("IDEMPO_TEST_POSTGRES"), "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
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
	w := &world{t: t, db: db, committed: map[string][]string{}}
	w.c = config{DSN: dsn, Schema: fmt.Sprintf("outbox_%d_%d", os.Getpid(), time.Now().UnixNano()%1e12), Lease: 1200 * time.Millisecond}
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), `drop schema if exists "`+w.c.Schema+`" cascade`)
		if err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	o := postgres.Options{Schema: w.c.Schema}
	w.must(postgres.Migrate(t.Context(), db, o))
	_, err = db.ExecContext(t.Context(), `create table "`+w.c.Schema+`".published (n bigint generated always as identity, id text not null, key text not null, body text not null, owner text not null)`)
	w.must(err)
	store, err := postgres.New(t.Context(), db, o)
	w.must(err)
	w.box, err = outbox.New(store, outbox.Options{Source: "/killed"})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// write appends until stop is closed: keys with an order of their own, some events without, some that nobody takes, some
// rolled back.
func (w *world) write(stop <-chan struct{}, writer int) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond): // the pace of the business
		}
		key, body := fmt.Sprintf("k%d-%d", writer, i%9), fmt.Sprint(i)
		switch {
		case i%31 == 30:
			key, body = fmt.Sprintf("bad%d-%d", writer, i), "poison"
		case i%5 == 4:
			key = ""
		}
		var ids []string
		err := w.box.Do(context.Background(), func(ctx context.Context) error {
			var err error
			ids, err = w.box.Append(ctx, outbox.Event{Topic: "t", Key: key, Type: "T", Payload: []byte(body)})
			if err == nil && i%11 == 10 {
				err = context.Canceled
			}
			return err
		})
		if err != nil {
			continue
		}
		w.mu.Lock()
		if body == "poison" {
			w.poisoned++
		} else {
			w.committed[key] = append(w.committed[key], ids...)
		}
		w.mu.Unlock()
	}
}

// start starts a relay that dies at a point when it has passed it a few times; "": it lives.
func (w *world) start(owner, halt string, after int) *crashtest.Process {
	w.t.Helper()
	c := w.c
	c.Owner, c.Halt, c.After = owner, halt, after
	text, err := json.Marshal(c)
	w.must(err)
	p, err := crashtest.Start(os.Args[0], serviceEnv+"="+string(text))
	w.must(err)
	return p
}

// strike lets a relay work beside the others until it comes to the point, and kills it there.
func (w *world) strike(point string, n int) {
	w.t.Helper()
	owner, after := fmt.Sprintf("victim %s %d", point, n), n%4
	if point == "handed over" {
		after = 0
	}
	p := w.start(owner, point, after)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if point == "handed over" { // it must have its half first, those of killed ones included, and then somebody has to come for some of it
		for w.count(`select count(*) from %s.outbox_cursors where owner = '`+owner+`'`) < outbox.Partitions/2 && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		other := w.start(fmt.Sprintf("comes-%d", n), "", 0)
		defer func() { w.must(other.Stop()) }()
	}
	_, err := p.Await(ctx, point)
	if err != nil {
		w.t.Fatalf("never came to %q: %v", point, err)
	}
	w.must(p.Kill())
	w.tally.Add("kills at "+point, 1)
}

func (w *world) count(q string) (n int) {
	w.t.Helper()
	w.must(w.db.QueryRowContext(w.t.Context(), fmt.Sprintf(q, `"`+w.c.Schema+`"`)).Scan(&n))
	return n
}

// drained waits until the relays have nothing left.
func (w *world) drained() {
	w.t.Helper()
	want := 0
	for _, ids := range w.committed {
		want += len(ids)
	}
	until := time.Now().Add(2 * time.Minute)
	for w.count(`select count(distinct id) from %s.published`) < want || w.count(`select count(*) from %s.outbox_asides where state <> 'dead'`) > 0 {
		if time.Now().After(until) {
			return // the check below says what is missing
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sound checks everything that was published.
func (w *world) sound() {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), `select id, key from "`+w.c.Schema+`".published order by n`)
	w.must(err)
	first, times := map[string][]string{}, map[string]int{}
	for rows.Next() {
		var id, key string
		w.must(rows.Scan(&id, &key))
		if times[id]++; times[id] == 1 {
			first[key] = append(first[key], id)
		} else {
			w.tally.Add("repeats", 1)
		}
	}
	w.must(rows.Close())
	n := 0
	for key, ids := range w.committed {
		n += len(ids)
		for _, id := range ids {
			if times[id] == 0 {
				w.t.Errorf("key %q: %s is lost", key, id)
			}
			delete(times, id)
		}
		if key == "" {
			continue
		}
		if fmt.Sprint(first[key]) != fmt.Sprint(ids) {
			w.t.Errorf("key %q: first appearances are in another order than the commits", key)
		}
	}
	if len(times) > 0 {
		w.t.Errorf("%d events were published and never committed", len(times))
	}
	if dead := w.count(`select count(*) from %s.outbox_asides where state = 'dead'`); dead != w.poisoned {
		w.t.Errorf("%d events are dead, %d were bad", dead, w.poisoned)
	}
	w.tally.Add("events", n)
}

// kills is how often a relay dies at each point: IDEMPO_TEST_KILLS, or a few.
func kills(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("IDEMPO_TEST_KILLS"), "2"))
	if err != nil || n < 1 {
		t.Fatalf("IDEMPO_TEST_KILLS: %v", err)
	}
	return n
}

// Relays are killed at every step beside one that lives, while events are appended all the time.
func TestRelayKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 2 {
		writers.Go(func() { w.write(stop, i) })
	}
	survivor := w.start("survivor", "", 0)
	n := kills(t)
	for i := range n {
		for _, point := range points {
			w.strike(point, i)
		}
	}
	close(stop)
	writers.Wait()
	w.drained()
	w.must(survivor.Stop())
	w.sound()
	for _, point := range points {
		w.tally.Least("kills at "+point, n)
	}
	w.tally.Least("repeats", 1)
	w.tally.Least("events", 500)
	if err := w.tally.Void(); err != nil {
		t.Error(err)
	}
	t.Log(w.tally.String())
}
