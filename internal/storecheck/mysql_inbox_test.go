package storecheck

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/mysql"
)

func TestMySQLInboxTrouble(t *testing.T) {
	t.Parallel()
	m := newMySQL(t, mysql.Options{}, nil)
	in, err := inbox.New(myEngine(t, m.Store, idempo.Config{}), inbox.Options{Subscriber: "billing", BackoffBase: 1, BackoffMax: 1})
	must(t, err)
	// handle gives a message whose first run meets trouble and then goes on, as if nothing had happened, or gives up.
	handle := func(t *testing.T, id string, trouble func(context.Context) error, goesOn bool) {
		t.Helper()
		runs := 0
		out, err := in.Handle(t.Context(), inbox.Message{Source: "orders", ID: id, Lane: "c-1", Body: []byte("body"), Attempt: 1}, func(ctx context.Context, _ inbox.Message) error {
			if runs++; runs > 1 {
				return m.effect(ctx, id)
			}
			must(t, m.effect(ctx, id))
			err := trouble(ctx)
			if !goesOn {
				return fmt.Errorf("invoice: %w", err)
			}
			must(t, m.effect(ctx, id+" stray")) // into another transaction than the inbox's
			must(t, m.effect(ctx, id))
			return nil
		})
		if err != nil || out.Status != inbox.StatusDone || runs != 2 {
			t.Errorf("%+v, %v; %d runs", out, err, runs)
		}
		m.effects(t, id, 1)
		m.effects(t, id+" stray", 0)
		if n := m.count(t, "select count(*) from idempo_receipts"); n != 0 {
			t.Errorf("%d receipts: it was counted as a failure", n)
		}
	}
	deadlock := func(ctx context.Context) error {
		err := m.deadlocks(t, ctx)
		if numberOf(err) != 1213 {
			t.Errorf("%v, want a deadlock", err)
		}
		return err
	}
	timeout := func(ctx context.Context) error {
		other, err := m.db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { must(t, other.Rollback()) }()
		_, err = other.ExecContext(t.Context(), "update counters set n = n + 1 where id = 2")
		must(t, err)
		err = m.exec(ctx, "update counters set n = n + 1 where id = 2")
		if numberOf(err) != 1205 {
			t.Errorf("%v, want a lock time-out", err)
		}
		return err
	}
	ended := func(ctx context.Context) error { // what innodb_rollback_on_timeout makes of a time-out
		_ = timeout(ctx)
		must(t, m.exec(ctx, "rollback"))
		return nil
	}
	t.Run("[messages/I11] the server ends the transaction and the handler goes on: nothing outside a transaction, run again, one effect", func(t *testing.T) {
		handle(t, "deadlock", deadlock, true)
		handle(t, "deadlock returned", deadlock, false)
		handle(t, "time-out", ended, true)
		handle(t, "time-out returned", timeout, false)
	})
	t.Run("a swallowed time-out undoes its own statement only: what the handler says counts", func(t *testing.T) {
		out, err := in.Handle(t.Context(), inbox.Message{Source: "orders", ID: "swallowed", Body: []byte("body"), Attempt: 1}, func(ctx context.Context, _ inbox.Message) error {
			return errors.Join(m.effect(ctx, "swallowed"), func() error { _ = timeout(ctx); return nil }())
		})
		if err != nil || out.Status != inbox.StatusDone {
			t.Errorf("%+v, %v", out, err)
		}
		m.effects(t, "swallowed", 1)
	})
}
