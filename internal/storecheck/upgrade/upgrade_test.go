package upgrade

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo/internal/crashtest"
)

// order and answer are those of testdata/worker.
type order struct{ Operation, Key string }

type answer struct{ Verdict, Body, Code, Err string }

// keysOf is how many keys of each operation a phase has.
const keysOf = 40

// Two releases share one database: a commit before the newest migrations, built from its own source, and the present one.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("with -short no other builds are made")
	}
	before, now := build(t, previous(t)), build(t, root(t))
	for _, kind := range []string{"postgres", "mysql", "sqlite"} {
		t.Run("[stores/MG4] "+kind+": N-1 and N on one database, through every migration", func(t *testing.T) {
			t.Parallel()
			d := openPlace(t, kind)
			d.migrate(t, before)
			first := d.version(t)
			x := &phases{d: d, seen: map[order]bool{}}

			a, b := d.worker(t, before, "serve"), d.worker(t, before, "serve")
			x.run(t, a, b)
			c := d.worker(t, now, "serve") // on the schema of N-1
			x.run(t, a, b, c)
			x.during(t, func() { d.migrate(t, now) }, a, b, c)
			if n := d.version(t); n != d.known(t) || n < first {
				t.Errorf("schema version %d, this release knows %d, the one before had %d", n, d.known(t), first)
			}
			t.Logf("N-1 made schema version %d, N version %d", first, d.known(t))
			stop(t, b)
			again := d.worker(t, before, "serve") // N-1, begun on the schema of N
			x.run(t, a, again, c)
			x.replayed(t, again, c)
			for _, p := range []*crashtest.Process{a, again, c} {
				stop(t, p)
			}
			x.counted(t)
		})
	}
}

// phases are calls of several processes; each key is asked for by more than one of them.
type phases struct {
	d    *place
	mu   sync.Mutex
	seen map[order]bool
	runs int
}

// run asks every process for the same new keys at once.
func (x *phases) run(t *testing.T, all ...*crashtest.Process) {
	t.Helper()
	first := len(x.seen)
	var wg sync.WaitGroup
	for i := range keysOf {
		for _, operation := range []string{"atomic", "leased"} {
			o := order{operation, fmt.Sprint(operation, " ", first+i)}
			x.seen[o] = true
			for _, p := range all {
				wg.Go(func() { x.ask(t, p, o) })
			}
		}
		if i%8 == 7 {
			wg.Wait()
		}
	}
	wg.Wait()
}

// during runs phases as long as f does, and one after it.
func (x *phases) during(t *testing.T, f func(), all ...*crashtest.Process) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		x.run(t, all...)
	}
}

// ask repeats an intent until it is answered. What may be heard meanwhile: in progress, and unavailable.
func (x *phases) ask(t *testing.T, p *crashtest.Process, o order) {
	t.Helper()
	for try := 0; ; try++ {
		var a answer
		if err := p.Ask(t.Context(), o, &a); err != nil {
			t.Error(o, err)
			return
		}
		switch {
		case a.Code == "" && (a.Verdict == "run" || a.Verdict == "replay"):
			if a.Body != "made "+o.Key {
				t.Errorf("%v: %+v", o, a)
			}
			if a.Verdict == "run" {
				x.mu.Lock()
				x.runs++
				x.mu.Unlock()
			}
			return
		case a.Code != "unavailable" && a.Code != "in_progress" || try == 2000:
			t.Errorf("%v, try %d: %+v", o, try, a)
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			return
		}
	}
}

// replayed wants what one release finished to be replayed by the other.
func (x *phases) replayed(t *testing.T, all ...*crashtest.Process) {
	t.Helper()
	for o := range x.seen {
		for _, p := range all {
			var a answer
			if err := p.Ask(t.Context(), o, &a); err != nil || a.Verdict != "replay" || a.Body != "made "+o.Key {
				t.Errorf("%v: %+v, %v", o, a, err)
			}
		}
	}
}

// counted wants one effect, one run and one finished record for each key.
func (x *phases) counted(t *testing.T) {
	t.Helper()
	count := func(query string) (n int) {
		t.Helper()
		if err := x.d.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := len(x.seen)
	if all < 8*keysOf || x.runs != all {
		t.Errorf("%d keys, %d runs", all, x.runs)
	}
	if n, whats := count("select count(*) from effects"), count("select count(distinct what) from effects"); n != all || whats != all {
		t.Errorf("%d effects of %d keys, of %d asked for", n, whats, all)
	}
	if n := count("select count(*) from " + x.d.records + " where state = 'completed' and attempt = 1"); n != all {
		t.Errorf("%d records are completed in the first attempt, of %d", n, all)
	}
}

// stop ends a process, which finishes what it has begun.
func stop(t *testing.T, p *crashtest.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
