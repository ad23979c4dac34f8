package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"
)

// endBudget bounds how long the end of a transaction, detached from its caller, is waited for.
const endBudget = 10 * time.Second

var errEndBudget = errors.New("no answer to the end of the transaction")

// errNothing marks an error before which nothing was sent that could change anything.
type errNothing struct{ error }

func (e errNothing) Unwrap() error { return e.error }

// settings are the two statements around a transaction: the first notes what the session has and sets what the
// transaction needs, the second gives everything back. User variables carry it, and are NULL afterwards.
func settings(isolation, idle string) (enter, leave string) {
	type setting struct{ name, note, value string }
	all := []setting{
		{isolation, "@idempo_isolation", "'READ-COMMITTED'"},
		{"innodb_lock_wait_timeout", "@idempo_lock", "1"},
		{"wait_timeout", "@idempo_wait", idle},
		{"autocommit", "@idempo_autocommit", "0"},
	}
	enter, leave = "set ", "set "
	notes, back := "", ""
	for i, x := range all {
		if i > 0 {
			enter, leave, notes, back = enter+", ", leave+", ", notes+", ", back+", "
		}
		enter += x.note + " = @@session." + x.name
		notes += "@@session." + x.name + " = " + x.value
		leave += "@@session." + x.name + " = " + x.note
		back += x.note + " = null"
	}
	return enter + ", " + notes, leave + ", " + back
}

const (
	boundLock = "set @idempo_lock = @@session.innodb_lock_wait_timeout, @@session.innodb_lock_wait_timeout = 1"
	freeLock  = "set @@session.innodb_lock_wait_timeout = @idempo_lock, @idempo_lock = null"
)

// dial takes a connection of the pool and sends it enter, another one where the pool's turns out to be dead before
// anything was sent on it.
func (s *Store) dial(ctx context.Context, enter string) (*sql.Conn, error) {
	for try := 0; ; try++ {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return nil, errNothing{err}
		}
		if _, err = conn.ExecContext(ctx, enter); err == nil {
			return conn, nil
		}
		drop(conn)
		if !errors.Is(err, driver.ErrBadConn) || try == 3 {
			return nil, errNothing{err}
		}
	}
}

// giveBack sends leave and puts the connection back into the pool; one that cannot be restored is closed.
func (s *Store) giveBack(ctx context.Context, conn *sql.Conn, leave string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBudget)
	defer cancel()
	if _, err := conn.ExecContext(ctx, leave); err != nil {
		drop(conn)
		return
	}
	_ = conn.Close()
}

// drop closes a connection instead of pooling it; the server rolls back what was open on it.
func drop(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// within waits for f as long as ctx allows; f takes no context and may go on.
func within(ctx context.Context, f func() error) error {
	answer := make(chan error, 1)
	go func() { answer <- f() }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return errEndBudget
	}
}
