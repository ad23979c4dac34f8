package idempgx

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo/postgres"
)

// warning is the SQLSTATE with which a server says that a commit is done here and maybe nowhere else: the wait for its
// synchronous standby was cancelled.
const warning = "01000"

// confirmTime bounds one write that is to be confirmed by the standby.
const confirmTime = time.Second

// Configure prepares a pool's configuration for New: c.ConnConfig.OnNotice is extended, what was set there is still called.
//
// A COMMIT that was waiting for a synchronous standby ends with a warning where somebody cancels the wait (pg_cancel_backend, a
// statement's cancel request): it is done, but a failover can lose it. With this hook the store reports success only after a
// later write has been confirmed by the standby; until then its calls are ErrUnavailable, and a commit whose confirmation does
// not come within Config.CompleteBudget is Unknown. Without it, and with database/sql, such a commit counts as acknowledged.
func Configure(c *pgxpool.Config) {
	next := c.ConnConfig.OnNotice
	c.ConnConfig.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == warning {
			conn.CustomData()[warning] = true
		}
		if next != nil {
			next(conn, n)
		}
	}
}

// warned reports whether c got a warning since it was asked last.
func warned(c *pgx.Conn) bool {
	data := c.PgConn().CustomData()
	_, yes := data[warning]
	delete(data, warning)
	return yes
}

var errUnconfirmed = errors.New("idempgx: a commit is not confirmed by the synchronous standby")

// unconfirmed counts the commits of a store that no standby has confirmed yet.
type unconfirmed struct {
	n  atomic.Int64
	mu sync.Mutex // one confirms at a time
}

// confirm writes something on c and returns nil once the standby has it, and so everything before it. Where nothing is unconfirmed it
// does nothing.
func (u *unconfirmed) confirm(ctx context.Context, c *pgx.Conn) error {
	seen := u.n.Load()
	if seen == 0 {
		return nil
	}
	if !u.mu.TryLock() {
		return errUnconfirmed // somebody is at it
	}
	defer u.mu.Unlock()
	warned(c)
	cancelled := make(chan struct{})
	timer := time.AfterFunc(confirmTime, func() {
		defer close(cancelled)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTime)
		defer cancel()
		_ = c.PgConn().CancelRequest(end) // the wait for the standby ends with another warning
	})
	_, err := c.Exec(ctx, "select pg_logical_emit_message(true, 'idempo', '')")
	if !timer.Stop() {
		<-cancelled
		_ = c.Close(ctx) // a late cancel must not meet another statement
		return errUnconfirmed
	}
	if err != nil || warned(c) {
		return errUnconfirmed
	}
	u.n.CompareAndSwap(seen, 0)
	return nil
}

// committed is called after a commit on c: nil, or it is done and not confirmed.
func (u *unconfirmed) committed(ctx context.Context, c *pgx.Conn) error {
	if !warned(c) {
		return nil
	}
	u.n.Add(1)
	if err := u.confirm(ctx, c); err != nil {
		return &postgres.PortError{Sent: true, Err: err}
	}
	return nil
}
