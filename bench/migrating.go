package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idempo/idempo/postgres"
)

// migrating measures claims while `migrate up` makes the newest index of the records again: migrations are taken back until it
// is gone, and come back beside the calls.
func migrating(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	f, err := p.filling(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.fill(ctx, 1, s.records, 100); err != nil {
		return nil, err
	}
	call := leasedCall(f.engine)
	window := time.Duration(s.rounds) * s.each
	idle, err := latencies(ctx, s.n, window, 4, call)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(p.pool)
	defer func() { _ = db.Close() }()
	o := postgres.Options{Schema: p.schema}
	index := func() (there bool, err error) {
		err = p.pool.QueryRow(ctx, `select to_regclass($1) is not null`, p.schema+".records_due").Scan(&there)
		return there, err
	}
	undone := 0
	for there, err := index(); there || err != nil; there, err = index() {
		if err == nil {
			err = postgres.Down(ctx, db, o)
		}
		if err != nil {
			return nil, err
		}
		undone++
	}
	var took time.Duration
	var wg sync.WaitGroup
	over := make(chan error, 1)
	wg.Go(func() {
		start := time.Now()
		err := postgres.Migrate(ctx, db, o)
		took = time.Since(start)
		over <- err
	})
	var busy []time.Duration
	for done := false; !done && err == nil; {
		var more []time.Duration
		more, err = latencies(ctx, s.n, 50*time.Millisecond, 4, call)
		busy = append(busy, more...)
		select {
		case bad := <-over:
			done, err = true, errors.Join(err, bad)
		default:
		}
	}
	wg.Wait()
	if err != nil {
		return nil, err
	}
	if there, err := index(); err != nil || !there {
		return nil, errors.Join(err, errors.New("the index was not made again"))
	}
	slices.Sort(busy)
	r := at(0.99, busy) / at(0.99, idle)
	return []result{{"E32", fmt.Sprintf("leased call p99 during `migrate up` on %s records ÷ idle, Postgres", thousands(s.records)), r, "", "≤ 3", r <= 3,
		fmt.Sprintf("%.0f µs · %.0f µs · %d migrations in %v, the longest wait of %d calls %.0f ms", at(0.99, idle), at(0.99, busy), undone, took.Round(time.Millisecond), len(busy), at(1, busy)/1000)}}, nil
}
