package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/sqlite"
)

// latencies runs f from clients for d and returns how long each call took, sorted.
func latencies(ctx context.Context, next *atomic.Int64, d time.Duration, clients int, f func(ctx context.Context, n int64) error) ([]time.Duration, error) {
	var mu sync.Mutex
	var all []time.Duration
	var first error
	var wg sync.WaitGroup
	start := time.Now()
	for range clients {
		wg.Go(func() {
			var mine []time.Duration
			var err error
			for time.Since(start) < d && err == nil {
				t := time.Now()
				err = f(ctx, next.Add(1))
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			defer mu.Unlock()
			all, first = append(all, mine...), errors.Join(first, err)
		})
	}
	wg.Wait()
	slices.Sort(all)
	if first == nil && len(all) == 0 {
		first = errors.New("no call was made")
	}
	return all, first
}

// at is the quantile q of sorted durations, in microseconds.
func at(q float64, sorted []time.Duration) float64 {
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Microseconds())
}

// leasedCall is a leased call with empty work: a claim and a completion.
func leasedCall(e *idempo.Engine) func(context.Context, int64) error {
	return func(ctx context.Context, n int64) error {
		return wantRun(e.Do(ctx, requestOf("send-parcel", n), func(context.Context, *idempo.Claim) (idempo.Result, error) {
			return idempo.Result{Status: 201, Body: []byte(answerBody)}, nil
		}))
	}
}

// filled is a store that can be filled with finished records.
type filled struct {
	what   string
	engine *idempo.Engine
	fill   func(ctx context.Context, from, to int, tenants int) error
	close  func()
}

// pgFill makes many finished records at once.
const pgFill = `insert into %s.records (tenant_id, operation, idempotency_key, request_hash, request_recipe, state, guard, on_crash, surface, attempt, token, owner, derived_key,
	status_code, response_headers, response_body, body_size, body_kept, claimed_at, started_at, lease_until, created_at, changed_at, completed_at, expires_at, gone_at)
	select 't' || n %% $3, 'send-parcel', sha256(('fill ' || n)::bytea), sha256('x'), 'input1;k=d1', 'completed', 'leased', 'hold', 'http', 1, '0123456789abcdef', 'host/1234 version',
	'6be8f39f-c03c-4adc-b47a-d559a3522431', 201, '[]', '{"id":9,"state":"created"}', 26, true, made, made, made, made, made, made, made + $4::interval, made + interval '30 days'
	from generate_series($1::int, $2::int) n, (select now() - interval '2 days' as made) m`

func (p *pg) filling(ctx context.Context) (*filled, error) {
	e, err := p.engine(ctx)
	if err != nil {
		return nil, err
	}
	return &filled{what: "Postgres, idempgx", engine: e, close: func() { p.close(ctx) }, fill: func(ctx context.Context, from, to, tenants int) error {
		_, err := p.pool.Exec(ctx, fmt.Sprintf(pgFill, p.schema), from, to, tenants, "10 days")
		if err == nil {
			_, err = p.pool.Exec(ctx, `analyze `+p.schema+`.records`)
		}
		return err
	}}, nil
}

func fillingSQLite(ctx context.Context) (*filled, error) {
	dir, err := os.MkdirTemp("", "idempo-bench")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "bench.db")
	store, err := sqlite.Open(ctx, "sqlite", path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	e, err := engineOver(store)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		return nil, err
	}
	return &filled{what: "SQLite", engine: e, close: func() { _ = db.Close(); _ = store.Close(); _ = os.RemoveAll(dir) }, fill: func(ctx context.Context, from, to, tenants int) error {
		const fill = `WITH RECURSIVE c (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM c WHERE n < %d)
			INSERT INTO idempo_records (tenant_id, operation, idempotency_key, request_hash, request_recipe, state, guard, on_crash, surface, failing, attempt, generation, token, owner,
			derived_key, status_code, response_headers, response_body, body_size, body_kept, format, claimed_at, started_at, lease_until, created_at, changed_at, completed_at, expires_at, gone_at)
			SELECT CAST('t' || n %% %d AS BLOB), CAST('send-parcel' AS BLOB), randomblob(32), randomblob(32), 'input1;k=d1', 'completed', 'leased', 'hold', 'http', 0, 1, 1, randomblob(16),
			'host/1234 version', '6be8f39f-c03c-4adc-b47a-d559a3522431', 201, CAST('[]' AS BLOB), CAST('{"id":9,"state":"created"}' AS BLOB), 26, 1, 1, m, m, m, m, m, m, m + 864000000000, m + 2592000000000
			FROM c, (SELECT (unixepoch() - 172800) * 1000000 AS m)`
		for from <= to { // short transactions, so that the store's own connection gets its turn
			end := min(from+100_000-1, to)
			if _, err := db.ExecContext(ctx, fmt.Sprintf(fill, from, end, tenants)); err != nil {
				return err
			}
			from = end + 1
		}
		_, err := db.ExecContext(ctx, `ANALYZE`)
		return err
	}}, nil
}

// growth compares the middle claim with few records and with many.
func growth(ctx context.Context, s settings) ([]result, error) {
	few := min(10_000, s.records/2)
	var out []result
	for _, open := range []func(context.Context) (*filled, error){
		func(ctx context.Context) (*filled, error) {
			p, err := openPg(ctx)
			if err != nil {
				return nil, err
			}
			return p.filling(ctx)
		}, fillingSQLite, fillingMySQL,
	} {
		for _, tenants := range []int{1, 10_000} {
			r, err := grow(ctx, s, open, few, tenants)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

func grow(ctx context.Context, s settings, open func(context.Context) (*filled, error), few, tenants int) (result, error) {
	f, err := open(ctx)
	if err != nil {
		return result{}, err
	}
	defer f.close()
	call := leasedCall(f.engine)
	middle := func() (float64, error) {
		var m []float64
		for range s.rounds {
			l, err := latencies(ctx, s.n, s.each, 4, call)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", f.what, err)
			}
			m = append(m, at(0.5, l))
		}
		return median(m), nil
	}
	if err := f.fill(ctx, 1, few, tenants); err != nil {
		return result{}, fmt.Errorf("%s: %w", f.what, err)
	}
	before, err := middle()
	if err != nil {
		return result{}, err
	}
	if err := f.fill(ctx, few+1, s.records, tenants); err != nil {
		return result{}, fmt.Errorf("%s: %w", f.what, err)
	}
	after, err := middle()
	r := after / before
	return result{"E30", fmt.Sprintf("leased call p50 with %s records ÷ with %s, %s, tenants: %d", thousands(s.records), thousands(few), f.what, tenants),
		r, "", "≤ 1.5", r <= 1.5, fmt.Sprintf("%.0f µs · %.0f µs", before, after)}, err
}

func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// interference measures claims while expired rows are swept and while a schema is brought up, each beside idle.
func interference(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	f, err := p.filling(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	call := leasedCall(f.engine)
	if _, err := p.pool.Exec(ctx, fmt.Sprintf(pgFill, p.schema), 1, s.records, 100, "1 day"); err != nil { // over for a day, not gone
		return nil, err
	}
	if _, err := p.pool.Exec(ctx, `analyze `+p.schema+`.records`); err != nil {
		return nil, err
	}
	idle, err := latencies(ctx, s.n, time.Duration(s.rounds)*s.each, 4, call)
	if err != nil {
		return nil, err
	}
	store, err := idempgx.New(ctx, p.pool, idempgx.Options{Schema: p.schema})
	if err != nil {
		return nil, err
	}
	sweeping, stop := context.WithCancel(ctx)
	var swept atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for sweeping.Err() == nil {
			start := time.Now()
			n, err := store.Sweep(sweeping, 1000)
			swept.Add(int64(n))
			if err == nil && n == 0 && swept.Load() >= int64(s.records) {
				return
			}
			time.Sleep(min(time.Since(start), time.Second)) // as Engine.Run does: a pause as long as the batch
		}
	})
	var busy []time.Duration
	for tries := 0; err == nil && tries < 100 && (tries == 0 || swept.Load() == 0); tries++ { // a short run may end before the first batch
		var more []time.Duration
		more, err = latencies(ctx, s.n, time.Duration(s.rounds)*s.each, 4, call)
		busy = append(busy, more...)
	}
	stop()
	wg.Wait()
	if err != nil {
		return nil, err
	}
	slices.Sort(busy)
	if swept.Load() == 0 {
		return nil, errors.New("nothing was swept meanwhile")
	}
	r := at(0.99, busy) / at(0.99, idle)
	return []result{{"E32", fmt.Sprintf("leased call p99 while %s expired rows are swept ÷ idle, Postgres", thousands(s.records)), r, "", "≤ 2", r <= 2,
		fmt.Sprintf("%.0f µs · %.0f µs · %s swept meanwhile", at(0.99, idle), at(0.99, busy), thousands(int(swept.Load())))}}, nil
}
