package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/inbox"
)

// billing is an inbox on Postgres whose handler inserts one row.
type billing struct {
	*pg
	in *inbox.Inbox
}

func openBilling(ctx context.Context) (*billing, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	e, err := p.engine(ctx)
	if err != nil {
		return nil, err
	}
	in, err := inbox.New(e, inbox.Options{Subscriber: "billing", Source: "shop"})
	return &billing{p, in}, err
}

func (b *billing) handler(ctx context.Context, m inbox.Message) error {
	n, err := strconv.ParseInt(m.ID, 10, 64)
	if err == nil {
		_, err = idempgx.Tx(ctx).Exec(ctx, insertOrder, n, answerBody)
	}
	return err
}

func message(n int64) inbox.Message {
	return inbox.Message{ID: strconv.FormatInt(n, 10), Attempt: 1, Body: []byte(`{"amount":12}`)}
}

// handle has one message handled, which must come to want.
func (b *billing) handle(ctx context.Context, n int64, want inbox.Status) error {
	out, err := b.in.Handle(ctx, message(n), b.handler)
	if err == nil && out.Status != want {
		err = fmt.Errorf("message %d: %s %v", n, out.Status, out.Err)
	}
	return err
}

// byHand is what teams write: a row with the message's id, unique, and the effect, in one transaction.
func (b *billing) byHand(ctx context.Context, n int64) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO handled (subscriber, source, id, body_hash) VALUES ('billing', 'shop', $1, $2) ON CONFLICT DO NOTHING`, strconv.FormatInt(n, 10), digestOf(n))
		if err != nil || tag.RowsAffected() == 0 {
			return errors.Join(err, errors.New("handled before"))
		}
		_, err = tx.Exec(ctx, insertOrder, n, answerBody)
		return err
	})
}

// messages measures an inbox on Postgres, one client as a consumer of one queue has it.
func messages(ctx context.Context, s settings) ([]result, error) {
	b, err := openBilling(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close(ctx)
	if _, err := b.pool.Exec(ctx, `CREATE TABLE handled (subscriber text NOT NULL, source text NOT NULL, id text NOT NULL, body_hash bytea NOT NULL,
		handled_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (subscriber, source, id))`); err != nil {
		return nil, err
	}
	const size, known = 100, 1000
	base := s.n.Add(known) - known
	for i := range int64(known) {
		if err := b.handle(ctx, base+i+1, inbox.StatusDone); err != nil {
			return nil, err
		}
	}
	names := []string{"by hand", "Handle", "HandleBatch of 100, a message", "duplicate"}
	rates, err := compare(ctx, s, 1,
		contender{names[0], b.byHand},
		contender{names[1], func(ctx context.Context, n int64) error { return b.handle(ctx, n, inbox.StatusDone) }},
		contender{names[2], func(ctx context.Context, _ int64) error {
			ms := make([]inbox.Message, size)
			for i := range ms {
				ms[i] = message(s.n.Add(1))
			}
			outs, err := b.in.HandleBatch(ctx, ms, b.handler)
			for _, o := range outs {
				if err == nil && o.Status != inbox.StatusDone {
					err = fmt.Errorf("%s %v", o.Status, o.Err)
				}
			}
			return err
		}},
		contender{names[3], func(ctx context.Context, n int64) error {
			return b.handle(ctx, base+n%known+1, inbox.StatusDuplicate)
		}})
	if err != nil {
		return nil, err
	}
	for i := range rates[2] {
		rates[2][i] *= size
	}
	batch, hand, duplicates := ratio(rates[2], rates[1]), ratio(rates[1], rates[0]), ratio(rates[3], rates[1])
	return []result{
		{"I37", "inbox on Postgres, idempgx, 1 client: messages by HandleBatch of 100 ÷ one by one", batch, "", "≥ 5", batch >= 5, note(names, rates)},
		{"I38", "the same: Handle ÷ a unique insert by hand with the same effect", hand, "", "≥ 0.85", hand >= 0.85, ""},
		{"I38", "the same: pure duplicates ÷ first deliveries", duplicates, "", "≥ 2", duplicates >= 2, ""},
	}, nil
}
