package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// sharedEngine is an engine over p with an atomic and three leased operations.
func sharedEngine(t testing.TB, s idempo.Store) *idempo.Engine {
	t.Helper()
	eng, err := idempo.New(s, idempo.Config{DigestKeys: []idempo.Secret{{ID: "k1", Value: digestOf("failover")}}, CompleteBudget: time.Minute,
		Operations: []idempo.Operation{{Name: "order", Guard: idempo.GuardAtomic}, {Name: "send", Guard: idempo.GuardLeased, Lease: time.Minute},
			{Name: "repeat", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashRerun, RepeatHarmless: "a test"}}})
	must(t, err)
	return eng
}

func intentOf(op, id string) idempo.Request {
	return idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: op, ID: id}, Input: [][]byte{[]byte(id)}}
}

// ledger counts effects outside of the database.
type ledger struct {
	mu sync.Mutex
	n  map[string]int
}

func (l *ledger) add(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = map[string]int{}
	}
	l.n[what]++
}

func (l *ledger) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n[what]
}

func TestPostgresFailover(t *testing.T) {
	t.Parallel()
	const fewest = 500 // acknowledged calls before and after, or the run proves nothing
	pair := startPair(t, true)
	stores := []*pg{openPgx(t, pair.dsn, pair.o), openSQL(t, "postgres", pair.dsn, pair.o)}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var outside ledger
	var acked sync.Map // key: the answer that its caller got
	var before, after, open, cut, late atomic.Int64
	var failed, moved atomic.Bool
	work := func(eng *idempo.Engine, p *pg, op, id string) (idempo.Begun, error) {
		return eng.Do(ctx, intentOf(op, id), func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
			if op == "order" {
				err := p.exec(ctx, fmt.Sprintf(`insert into "%s".done (what) values ('%s')`, pair.o.Schema, id))
				return idempo.Result{Status: 201, Body: []byte(id)}, err
			}
			outside.add(id)
			return idempo.Result{Status: 201, Body: []byte(id)}, nil
		})
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			p := stores[w%2]
			eng := sharedEngine(t, p)
			for n := 0; after.Load() < fewest && ctx.Err() == nil; n++ {
				op := []string{"order", "order", "send"}[n%3]
				id := fmt.Sprintf("%s-%d-%d", op, w, n)
				for ctx.Err() == nil {
					wasMoved := moved.Load()
					open.Add(1)
					b, err := work(eng, p, op, id)
					open.Add(-1)
					if err == nil {
						acked.Store(id, string(b.Record.Result.Body))
						if wasMoved {
							after.Add(1)
						} else if !failed.Load() {
							before.Add(1)
						}
						break
					}
					if wasMoved {
						late.Add(1)
					} else {
						cut.Add(1)
					}
					if errors.Is(err, idempo.ErrInDoubt) {
						break // nobody was told that it is done
					}
				}
			}
		})
	}
	for before.Load() < fewest || open.Load() < 4 {
		if ctx.Err() != nil {
			t.Fatalf("void: %d calls before the failover", before.Load())
		}
		pauseTest(t)
	}
	failed.Store(true)
	pair.fail(t)
	moved.Store(true)
	wg.Wait()
	t.Logf("acknowledged before %d, after %d; %d errors while there was no primary, %d after", before.Load(), after.Load(), cut.Load(), late.Load())

	t.Run("[stores/CT46] the run is not void", func(t *testing.T) {
		if before.Load() < fewest || after.Load() < fewest || cut.Load() < 4 {
			t.Errorf("%d calls before, %d after, %d cut by the failover", before.Load(), after.Load(), cut.Load())
		}
	})
	t.Run("[stores/PG8, CT20] no acknowledged key is lost, no effect is there twice", func(t *testing.T) {
		p := openPgx(t, pair.dsn, pair.o)
		eng := sharedEngine(t, p)
		acked.Range(func(key, answer any) bool {
			id := key.(string)
			op, _, _ := strings.Cut(id, "-")
			b, err := eng.Do(t.Context(), intentOf(op, id), func(context.Context, *idempo.Claim) (idempo.Result, error) {
				return idempo.Result{}, errors.New("it ran again")
			})
			if err != nil || b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != answer.(string) {
				t.Errorf("%s: %q, %v", id, b.Verdict, err)
			}
			if n := outside.count(id); op == "send" && n != 1 {
				t.Errorf("%s: %d effects outside", id, n)
			}
			return true
		})
		if n := p.count(t, `select count(*) from (select what from SCHEMA.done group by what having count(*) > 1) twice`); n != 0 {
			t.Errorf("%d effects are there twice", n)
		}
		rows := p.count(t, `select count(*) from SCHEMA.done`)
		if records := p.count(t, `select count(*) from SCHEMA.records where operation = 'order' and state = 'completed'`); rows != records {
			t.Errorf("%d effects, %d records", rows, records)
		}
	})
	t.Run("[stores/PG8] it works as soon as the new primary does: no more errors than there were connections", func(t *testing.T) {
		if late.Load() > 3*8 {
			t.Errorf("%d calls that began on the new primary failed", late.Load())
		}
	})
}
