package storecheck

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

var (
	planStart = regexp.MustCompile(`(?m)^\S+ \S+ \S+ \[\d+\] LOG:  duration: .* plan:$`)
	planNode  = regexp.MustCompile(`Scan[^\n]* on records(?: \w+)?  [^\n]*actual rows=(\d+) loops=(\d+)`)
	planWaste = regexp.MustCompile(`Rows Removed by [A-Za-z ]+: (\d+)`)
)

// Each statement on the way of a call finds its row by the whole key, whatever the planner knows of the table and under
// however many digest keys: what it reads does not grow with the table.
func TestPostgresPlans(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	s := pgserver.Start(t, "shared_preload_libraries=auto_explain", "auto_explain.log_min_duration=0", "auto_explain.log_analyze=on",
		"auto_explain.log_timing=off", "autovacuum=off")
	db := openDB(t, "pgx", s.DSN())
	must(t, postgres.Migrate(t.Context(), db, postgres.Options{}))
	_, err := db.ExecContext(t.Context(), `insert into idempo.records (tenant_id, operation, idempotency_key, request_hash, request_recipe, state, guard, on_crash,
		attempt, token, claimed_at, started_at, lease_until, created_at, changed_at, completed_at, expires_at, gone_at)
		select 'tenant', 'op', sha256(n::text::bytea), 'hash-hash-hash-hash', 'r1', 'completed', 'leased', 'hold', 1, '0123456789abcdef', ago, ago, ago, ago, ago, ago,
			now() + interval '1 day', now() + interval '2 days' from generate_series(1, $1) n, (select now() - interval '1 hour' as ago) a`, rows)
	must(t, err)
	_, err = db.ExecContext(t.Context(), `update idempo.meta set watched_to = now()`) // as a sweeper leaves it
	must(t, err)
	for _, known := range []string{"before the planner knows the table", "after analyze"} {
		if known == "after analyze" {
			_, err := db.ExecContext(t.Context(), `analyze idempo.records; select brin_summarize_new_values('idempo.records_created')`)
			must(t, err)
		}
		for _, keys := range []int{1, 2, 3} {
			t.Run("[security/SEC94] "+known+", digest keys: "+strconv.Itoa(keys), func(t *testing.T) {
				before := s.Log(t)
				st, err := idempgx.New(t.Context(), openPool(t, s.DSN()), postgres.Options{})
				must(t, err)
				for range 12 { // past the fifth run, after which a plan is kept
					everyWay(t, st, keys-1)
					if known == "after analyze" {
						_, err = st.Take(t.Context(), idempo.TakeParams{Operations: []string{"op"}, Limit: 1, Token: idempo.Token{1}, Lease: time.Second})
						must(t, err)
						_, err := st.Sweep(t.Context(), 100)
						must(t, err)
					}
				}
				plans := planStart.Split(string(s.Log(t)[len(before):]), -1)[1:]
				if len(plans) < 100 {
					t.Fatalf("void: %d plans", len(plans))
				}
				for _, plan := range plans {
					plan, _, _ = strings.Cut(plan, "\n2") // the next line of the log
					if !strings.Contains(plan, " on records") {
						continue // a look at the server's settings
					}
					most := 20
					switch {
					case strings.Contains(plan, "records_created"):
						most = rows / 3 // the young end of the table
					case strings.Contains(plan, "Tid Range Scan"):
						most = 2 * rows // one stretch of the table, which this one is not larger than
					}
					for _, m := range planNode.FindAllStringSubmatch(plan, -1) {
						n, _ := strconv.Atoi(m[1])
						loops, _ := strconv.Atoi(m[2])
						if n*loops > most || strings.Contains(m[0], "Seq Scan") {
							t.Fatalf("%s\n%s", m[0], plan)
						}
					}
					for _, m := range planWaste.FindAllStringSubmatch(plan, -1) {
						if n, _ := strconv.Atoi(m[1]); n > most {
							t.Fatalf("%s\n%s", m[0], plan)
						}
					}
				}
			})
		}
	}
}

// everyWay takes a key through what calls do with it, each under more digests.
func everyWay(t *testing.T, st *postgres.Store, more int) {
	t.Helper()
	ctx := t.Context()
	claim := func(g idempo.Guard) idempo.AcquireParams {
		c := pgClaim(g)
		for range more {
			c.Aliases = append(c.Aliases, pgDigest(pgIDs.Add(1)))
		}
		return c
	}
	look := func(c idempo.AcquireParams) {
		for _, without := range []bool{false, true} {
			_, err := st.Lookup(ctx, idempo.LookupParams{Key: c.Key, Aliases: c.Aliases, WithoutBody: without})
			must(t, err)
		}
	}
	leased := claim(idempo.GuardLeased)
	look(leased)
	won := pgAcquire(t, ctx, st, leased, idempo.VerdictRun)
	pgAcquire(t, ctx, st, pgAgain(leased), idempo.VerdictInProgress)
	_, err := st.Renew(ctx, idempo.RenewParams{Key: leased.Key, Token: leased.Token, Lease: time.Minute})
	must(t, err)
	_, err = st.Complete(ctx, pgResult(leased, won, "body"))
	must(t, err)
	pgAcquire(t, ctx, st, pgAgain(leased), idempo.VerdictReplay)
	look(leased)

	failed := claim(idempo.GuardLeased)
	pgAcquire(t, ctx, st, failed, idempo.VerdictRun)
	_, err = st.Release(ctx, idempo.ReleaseParams{Key: failed.Key, Token: failed.Token, To: idempo.StateFailed, Retention: time.Hour})
	must(t, err)
	pgAcquire(t, ctx, st, pgAgain(failed), idempo.VerdictRun) // in its place

	atomic := claim(idempo.GuardAtomic)
	must(t, st.InTx(ctx, func(ctx context.Context) error {
		_, err := st.Complete(ctx, pgResult(atomic, pgAcquire(t, ctx, st, atomic, idempo.VerdictRun), "body"))
		return err
	}))
	must(t, st.InTx(ctx, func(ctx context.Context) error {
		pgAcquire(t, ctx, st, pgAgain(atomic), idempo.VerdictReplay)
		return nil
	}))
}
