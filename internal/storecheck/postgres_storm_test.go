package storecheck

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

// storm is a row of faults that a seed decides, one after the other, on a server under load.
type storm struct {
	*surge
	server *pgserver.Server
	wire   *crashtest.Wire
	rnd    *rand.Rand
}

// strike lets one fault happen and returns its name.
func (s *storm) strike(t *testing.T) string {
	cutAt := func(name string, match func(string) bool) string {
		faults := []crashtest.Fault{crashtest.LoseRequest, crashtest.KeepAnswer, crashtest.CutInside, crashtest.Race}
		s.wire.Arm(crashtest.Trap{Match: match, Fault: faults[s.rnd.IntN(len(faults))], Cut: true})
		select {
		case <-s.wire.Sprung():
			return "cut at " + name
		case <-t.Context().Done():
			return "" // the load is over
		}
	}
	switch s.rnd.IntN(12) {
	case 0:
		s.server.Kill(t)
		s.server.Up(t)
		return "server killed"
	case 1:
		s.server.Stop(t, []string{"fast", "immediate"}[s.rnd.IntN(2)])
		s.server.Up(t)
		return "server stopped"
	case 2:
		_, err := s.stores[0].db.ExecContext(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()`)
		must(t, err)
		return "sessions terminated"
	case 3, 4:
		return cutAt("the claim", pgserver.IsClaim)
	case 5, 6:
		return cutAt("the lock", pgserver.IsLock)
	case 7, 8:
		return cutAt("the result", pgserver.IsResult)
	}
	return cutAt("COMMIT", crashtest.IsCommit)
}

// TestPostgresStorm has all faults at once meet callers of the same few keys, by a seed: IDEMPO_TEST_SEED picks another, and
// IDEMPO_TEST_STRIKES says how many faults there are.
func TestPostgresStorm(t *testing.T) {
	t.Parallel()
	seed := kitCaps(t).Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	strikes, err := strconv.Atoi(cmp.Or(os.Getenv("IDEMPO_TEST_STRIKES"), "30"))
	must(t, err)
	t.Logf("seed %d", seed)
	server := pgserver.Start(t, "max_connections=200")
	wire, dsn := newWire(t, server.DSN())
	s := &storm{surge: newSurge(t, dsn, migrated(t, server.DSN(), postgres.Options{})), server: server, wire: wire, rnd: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // repeatable
	for _, p := range s.stores {
		p.db = openDB(t, "pgx", server.DSN()) // who looks is not in the storm
		p.db.SetMaxIdleConns(-1)
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	var over atomic.Bool
	var last atomic.Int64
	var wg sync.WaitGroup
	for range 12 { // callers; each key is asked for by several of them, at about the same time
		wg.Go(func() {
			for !over.Load() {
				i := int(last.Add(1)) / 3
				if _, err := s.once(ctx, "storm", i, func() {}); err != nil {
					t.Error(err)
					return
				}
				s.tally.Add("definite successes", 1)
			}
		})
	}
	for range strikes {
		if name := s.strike(t); name != "" {
			s.tally.Add("faults that took hold", 1)
			s.tally.Add(name, 1)
		}
	}
	over.Store(true)
	wg.Wait()
	keys := int(last.Load())/3 + 1
	for i := range keys {
		b, err := s.once(ctx, "storm", i, func() {})
		must(t, err)
		if b.Verdict == idempo.VerdictReplay {
			s.tally.Add("replays", 1)
		}
		operation, key, _ := s.job("storm", i)
		if operation != "atomic" {
			continue
		}
		if n := s.stores[0].count(t, `select count(*) from SCHEMA.effects where what like $1`, key+"|%"); n != 1 {
			t.Errorf("seed %d: %s has %d effects", seed, key, n)
		}
	}
	t.Run(fmt.Sprintf("[stores/CT48, CT44] seed %d: one order of events explains every answer", seed), func(t *testing.T) {
		if err := s.story.Check(); err != nil {
			t.Error(err)
		}
	})
	t.Run("[stores/CT46] without the guard a lost answer makes two effects", func(t *testing.T) {
		bare := openDB(t, "pgx", dsn)
		insert := fmt.Sprintf(`insert into "%s".done values ('bare')`, s.stores[0].o.Schema)
		s.wire.Arm(crashtest.Trap{Match: func(sql string) bool { return sql == insert }, Fault: crashtest.KeepAnswer, Cut: true})
		for _, err := bare.ExecContext(ctx, insert); err != nil; _, err = bare.ExecContext(ctx, insert) {
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		if n := s.stores[0].count(t, `select count(*) from SCHEMA.done where what = 'bare'`); n != 2 {
			t.Errorf("%d effects", n)
		}
	})
	t.Run("[stores/CT46] a storm that did too little is void", func(t *testing.T) {
		for kind, n := range map[string]int{"faults that took hold": strikes, "definite successes": 2 * strikes, "replays": strikes / 2, "faults seen by callers": strikes / 10} {
			s.tally.Least(kind, n)
		}
		if err := s.tally.Void(); err != nil {
			t.Errorf("%v (%s)", err, &s.tally)
		}
		t.Log(&s.tally, s.story.Counts())
	})
}
