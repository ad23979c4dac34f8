package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
)

// replayed is how many keys the replays turn around in.
const replayed = 1000

func replayPgx(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	e, err := p.engine(ctx)
	if err != nil {
		return nil, err
	}
	do := guardedPgx(e)
	base := s.n.Add(replayed)
	for i := range int64(replayed) {
		if err := do.do(ctx, base-i); err != nil {
			return nil, err
		}
		if err := p.threeFlights(ctx, base-i); err != nil {
			return nil, err
		}
	}
	replay := func(ctx context.Context, n int64) error {
		b, err := e.Do(ctx, requestOf("create-order", base-n%replayed), nil)
		if err == nil && b.Verdict != idempo.VerdictReplay {
			err = fmt.Errorf("verdict %s", b.Verdict)
		}
		return err
	}
	read := func(ctx context.Context, n int64) error { return p.read(ctx, base-n%replayed) }
	names := []string{"plain transaction", "replay", "SELECT by hand"}
	rates, err := compare(ctx, s, 16, contender{names[0], p.bare}, contender{names[1], replay}, contender{names[2], read})
	if err != nil {
		return nil, err
	}
	plain, hand := ratio(rates[1], rates[0]), ratio(rates[1], rates[2])
	return []result{
		{"H52", "replays, idempgx, 16 clients ÷ the plain transaction of a first call", plain, "", "≥ 3.5", plain >= 3.5, note(names, rates)},
		{"E34 H52", "replays ÷ SELECT of the row by hand", hand, "", "≥ 0.80", hand >= 0.8, ""},
	}, nil
}

// flights counts how often a connection turned from reading to writing: one flight is a write, however large, whose
// answer was then read.
type flights struct {
	n atomic.Int64
}

type countingConn struct {
	net.Conn
	f     *flights
	wrote atomic.Bool
}

func (c *countingConn) Write(b []byte) (int, error) {
	if !c.wrote.Swap(true) {
		c.f.n.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.wrote.Store(false)
	}
	return n, err
}

func flightsPgx(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	if _, err := p.engine(ctx); err != nil {
		return nil, err
	}
	f := &flights{}
	cfg := p.pool.Config()
	cfg.MaxConns = 1
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: c, f: f}, nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	counted := &pg{pool: pool, schema: p.schema}
	store, err := idempgx.New(ctx, pool, idempgx.Options{Schema: p.schema})
	if err != nil {
		return nil, err
	}
	e, err := engineOver(store)
	if err != nil {
		return nil, err
	}
	do := guardedPgx(e)
	per := func(f1 func() error) (float64, error) {
		if err := repeat(20, f1); err != nil { // warm up
			return 0, err
		}
		before := f.n.Load()
		err := repeat(100, f1)
		return float64(f.n.Load()-before) / 100, err
	}
	bare, err := per(func() error { return counted.bare(ctx, s.n.Add(1)) })
	if err != nil {
		return nil, err
	}
	first, err := per(func() error { return do.do(ctx, s.n.Add(1)) })
	if err != nil {
		return nil, err
	}
	known := s.n.Load()
	again := func() error {
		b, err := e.Do(ctx, requestOf("create-order", known), nil)
		if err == nil && b.Verdict != idempo.VerdictReplay {
			err = fmt.Errorf("verdict %s", b.Verdict)
		}
		return err
	}
	replay, err := per(again)
	if err != nil {
		return nil, err
	}
	xids, err := least(func() (int64, error) { return p.commits(ctx, func() error { return repeat(200, again) }) })
	if err != nil {
		return nil, err
	}
	wal, err := least(func() (int64, error) { return p.wal(ctx, func() error { return repeat(500, again) }) })
	if err != nil {
		return nil, err
	}
	return []result{
		{"H51", "flights of a first call minus those of BEGIN, insert, COMMIT", first - bare, "", "0", first <= bare, fmt.Sprintf("%.2f and %.2f", first, bare)},
		{"E33", "flights of a replay", replay, "", "1", replay == 1, ""},
		{"E33 H52", "transaction ids per replay", float64(xids) / 200, "", "0", xids == 0, ""},
		{"E33 H52", "WAL bytes per replay", float64(wal) / 500, "", "0", wal == 0, fmt.Sprintf("%d bytes over 500 replays, the least of five runs", wal)},
	}, err
}

// wal counts the bytes of write-ahead log that the server wrote while f ran.
func (p *pg) wal(ctx context.Context, f func() error) (n int64, err error) {
	var before string
	if err := p.pool.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&before); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	err = p.pool.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - $1::pg_lsn)::bigint`, before).Scan(&n)
	return n, err
}
