package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

// nobody takes every event at once.
type nobody struct{ n atomic.Int64 }

func (p *nobody) Publish(_ context.Context, params outbox.PublishParams) {
	p.n.Add(int64(len(params.Events)))
	for i := range params.Events {
		params.Done(i, nil)
	}
}

// backlog is a store with events that nobody has published.
func backlog(ctx context.Context, p *pg, rows int) (*postgres.Store, error) {
	o := postgres.Options{Schema: p.schema}
	if err := idempgx.Migrate(ctx, p.pool, o); err != nil {
		return nil, err
	}
	_, err := p.pool.Exec(ctx, `INSERT INTO outbox (seq, xid, slot, partition, id, source, tenant_id, topic, key, type, content_type, payload, appended_at, recorded_at)
		SELECT nextval('outbox_seq'), pg_current_xact_id(), 0, outbox_partition('default', 'order-' || n % 20000, NULL), gen_random_uuid(), '/bench', 'default', 'orders.paid',
			'order-' || n % 20000, 'OrderPaid', 'application/json', decode(repeat('ab', 300), 'hex'), now(), now() AT TIME ZONE 'UTC' FROM generate_series(1, $1::int) n`, rows)
	if err == nil {
		_, err = p.pool.Exec(ctx, `ANALYZE outbox`)
	}
	if err != nil {
		return nil, err
	}
	return idempgx.New(ctx, p.pool, o)
}

// relayed publishes the backlog for a new group, and returns events a second.
func relayed(ctx context.Context, s *postgres.Store, group string, rows int) (float64, error) {
	pub := &nobody{}
	relay, err := outbox.NewRelay(s, pub, outbox.RelayOptions{Group: group, From: outbox.FromBeginning})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err := relay.Once(ctx); err != nil {
		return 0, err
	}
	if n := pub.n.Load(); n != int64(rows) {
		return 0, fmt.Errorf("published %d of %d", n, rows)
	}
	return float64(rows) / time.Since(start).Seconds(), nil
}

// paged reads the same rows behind a sequence value, a thousand at a time, and does nothing with them.
func paged(ctx context.Context, p *pg, rows int) (float64, error) {
	start := time.Now()
	n, after := 0, int64(0)
	for {
		page, err := p.pool.Query(ctx, `SELECT seq, partition, id::text, source, tenant_id, topic, key, type, content_type, payload, headers, traceparent, tracestate, appended_at
			FROM outbox WHERE seq > $1 ORDER BY seq LIMIT 1000`, after)
		if err != nil {
			return 0, err
		}
		var r struct {
			part                                 int16
			id, source, tenant, topic, kind      string
			key, content, headers, parent, state *string
			payload                              []byte
			at                                   time.Time
		}
		got := 0
		_, err = pgx.ForEachRow(page, []any{&after, &r.part, &r.id, &r.source, &r.tenant, &r.topic, &r.key, &r.kind, &r.content, &r.payload, &r.headers, &r.parent, &r.state, &r.at},
			func() error { got++; return nil })
		if err != nil {
			return 0, err
		}
		if n += got; got < 1000 {
			break
		}
	}
	if n < rows {
		return 0, fmt.Errorf("read %d of %d", n, rows)
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// relays measures a relay with a null publisher beside a bare paged read of the same rows.
func relays(ctx context.Context, s settings) ([]result, error) {
	const rows = 100_000
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	store, err := backlog(ctx, p, rows)
	if err != nil {
		return nil, err
	}
	if _, err := paged(ctx, p, rows); err != nil { // everything is in memory
		return nil, err
	}
	var ours, bare []float64
	for round := range s.rounds {
		a, err := relayed(ctx, store, fmt.Sprint("round-", round), rows)
		if err != nil {
			return nil, err
		}
		b, err := paged(ctx, p, rows)
		if err != nil {
			return nil, err
		}
		ours, bare = append(ours, a), append(bare, b)
	}
	v := ratio(ours, bare)
	return []result{{"RL29", "relay to a null publisher ÷ bare paged read of the same rows, 100,000 of 300 bytes, PostgreSQL, pgx", v, "", "≥ 0.6", v >= 0.6,
		fmt.Sprintf("%.0f events/s, bare %.0f rows/s", median(ours), median(bare))}}, nil
}

// appends measures a business transaction with and without a keyed event.
func appends(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	store, err := backlog(ctx, p, 1)
	if err != nil {
		return nil, err
	}
	box, err := outbox.New(store, outbox.Options{Source: "/bench"})
	if err != nil {
		return nil, err
	}
	if _, err := p.pool.Exec(ctx, `INSERT INTO orders (n, body) SELECT n, 'x' FROM generate_series(1, 1000) n`); err != nil {
		return nil, err
	}
	business := func(ctx context.Context, tx pgx.Tx, n int64) error {
		if _, err := tx.Exec(ctx, insertOrder, n, answerBody); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE orders SET body = 'paid' WHERE id = $1`, n%1000+1)
		return err
	}
	payload := []byte(body256())
	with := contender{"with", func(ctx context.Context, n int64) error {
		return box.Do(ctx, func(ctx context.Context) error {
			if err := business(ctx, idempgx.Tx(ctx), n); err != nil {
				return err
			}
			_, err := box.Append(ctx, outbox.Event{Topic: "orders.paid", Key: fmt.Sprint(n % 1000), Type: "OrderPaid", Payload: payload})
			return err
		})
	}}
	without := contender{"without", func(ctx context.Context, n int64) error {
		return store.InTx(ctx, func(ctx context.Context) error { return business(ctx, idempgx.Tx(ctx), n) })
	}}
	rates, err := compare(ctx, s, 32, with, without)
	if err != nil {
		return nil, err
	}
	v := ratio(rates[0], rates[1])
	return []result{{"O21", "business transaction (insert, update) with a keyed Append ÷ without, 32 clients, pgx", v, "", "≥ 0.90", v >= 0.9,
		fmt.Sprintf("%.0f ÷ %.0f transactions/s", median(rates[0]), median(rates[1]))}}, nil
}
