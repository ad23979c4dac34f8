package storecheck

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

func TestMySQLFlights(t *testing.T) {
	t.Parallel()
	m, h := hookedMySQL(t)
	var mu sync.Mutex
	var seen []string
	h.on(func(q string, _ *driverConn) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, q)
		return nil
	})
	// sent returns the statements that f sends.
	sent := func(f func()) []string {
		mu.Lock()
		seen = nil
		mu.Unlock()
		f()
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
	ctx := t.Context()
	l, p := pgClaim(idempo.GuardLeased), pgClaim(idempo.GuardAtomic)
	var a idempo.Acquired
	for _, one := range []struct {
		what string
		most int
		do   func()
	}{
		{"a leased claim", 3, func() { a = pgAcquire(t, ctx, m, l, idempo.VerdictRun) }},
		{"a claim in progress", 1, func() { pgAcquire(t, ctx, m, pgAgain(l), idempo.VerdictInProgress) }},
		{"a renewal", 2, func() {
			_, err := m.Renew(ctx, idempo.RenewParams{Key: l.Key, Token: l.Token, Lease: l.Lease})
			must(t, err)
		}},
		{"a completion", 2, func() {
			_, err := m.Complete(ctx, pgResult(l, a, "body"))
			must(t, err)
		}},
		{"a lookup", 1, func() {
			_, err := m.Lookup(ctx, idempo.LookupParams{Key: l.Key})
			must(t, err)
		}},
	} {
		t.Run("[stores/MY3] rule 6: "+one.what+fmt.Sprintf(" is %d statements at most", one.most), func(t *testing.T) {
			if got := sent(one.do); len(got) > one.most {
				t.Errorf("%d: %s", len(got), strings.Join(got, "\n"))
			}
		})
	}
	t.Run("[stores/E5] a replay is one plain read, also of an atomic claim: no transaction, no lock, no write", func(t *testing.T) {
		must(t, m.InTx(ctx, func(ctx context.Context) error {
			_, err := m.Complete(ctx, pgResult(p, pgAcquire(t, ctx, m, p, idempo.VerdictRun), "body"))
			return err
		}))
		for what, replay := range map[string]func(){
			"leased": func() { pgAcquire(t, ctx, m, pgAgain(l), idempo.VerdictReplay) },
			"atomic": func() {
				must(t, m.InTx(ctx, func(ctx context.Context) error {
					pgAcquire(t, ctx, m, pgAgain(p), idempo.VerdictReplay)
					return nil
				}))
			},
		} {
			got := sent(replay)
			if len(got) != 1 || !strings.HasPrefix(got[0], "select") || strings.Contains(got[0], "for update") {
				t.Errorf("%s: %s", what, strings.Join(got, "\n"))
			}
		}
	})
}

func TestMySQLServerKilled(t *testing.T) {
	t.Parallel()
	mysqlConfig(t)
	t.Run("[stores/CT19] the server is killed and starts again with keys in flight: every acknowledged key replays, every other has one effect after the retry", func(t *testing.T) {
		t.Parallel()
		server := newPrivateMySQL(t)
		c := mysqlDatabase(t, server.config)
		mysqlTables(t, c, mysql.Options{})
		m := openStore(t, c, mysql.Options{}, func(c *driver.Config) { c.Timeout = time.Second })
		e := myEngine(t, m.Store, idempo.Config{CompleteBudget: 300 * time.Millisecond})
		const workers = 10
		work := func(id string) func(context.Context, *idempo.Claim) (idempo.Result, error) {
			return func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				return idempo.Result{Status: 201, Body: []byte(id)}, m.effect(ctx, id)
			}
		}
		var mu sync.Mutex
		acknowledged, asked := map[string]bool{}, map[string]bool{}
		enough, down := make(chan struct{}), make(chan struct{})
		var once sync.Once
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-down:
						return
					default:
					}
					id := fmt.Sprintf("%d-%d", w, n)
					_, err := e.Do(t.Context(), request("atomic", id), work(id))
					mu.Lock()
					asked[id] = true
					if err == nil {
						acknowledged[id] = true
					}
					if len(acknowledged) > 100 {
						once.Do(func() { close(enough) })
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		server.kill(t)
		close(down)
		wg.Wait()
		server.start(t)
		for id := range asked {
			eventually(t, func() bool {
				b, err := e.Do(t.Context(), request("atomic", id), work(id))
				if err == nil && acknowledged[id] && (b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != id) {
					t.Errorf("%s was acknowledged and is %q", id, b.Verdict)
				}
				return err == nil
			})
			m.effects(t, id, 1)
		}
		t.Logf("%d acknowledged of %d", len(acknowledged), len(asked))
		if len(asked) == len(acknowledged) {
			t.Log("none was in flight")
		}
	})
}
