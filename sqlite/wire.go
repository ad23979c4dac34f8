package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// wire is the writing connection. Of a store that Open made it is one for life, with its statements prepared; of a
// caller's handle it is borrowed for a turn. Whoever holds the line holds the wire.
type wire struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt // by query, or by text for those that are not files; nil: nothing is prepared
}

// takeWire returns the writing connection. ctx bounds the wait for a caller's handle.
func (s *Store) takeWire(ctx context.Context) (*wire, error) {
	if s.kept != nil {
		return s.kept, nil
	}
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn}
	if s.owned {
		w.stmts = map[string]*sql.Stmt{}
		s.kept = w
	}
	return w, nil
}

// giveWire returns the connection after a turn that ended with err. A broken one is replaced before the next.
func (s *Store) giveWire(w *wire, err error) {
	if s.kept != w {
		_ = w.conn.Close()
	} else if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		s.dropWire()
	}
}

func (s *Store) dropWire() {
	w := s.kept
	s.kept = nil
	if w == nil {
		return
	}
	for _, st := range w.stmts {
		_ = st.Close()
	}
	_ = w.conn.Close()
}

// stmt returns text prepared on the connection, nil where nothing is.
func (w *wire) stmt(name, text string) (*sql.Stmt, error) {
	if w.stmts == nil {
		return nil, nil
	}
	st := w.stmts[name]
	if st == nil {
		var err error
		if st, err = w.conn.PrepareContext(background{}, text); err != nil {
			return nil, err
		}
		w.stmts[name] = st
	}
	return st, nil
}

// exec runs a statement of the store on the connection.
func (w *wire) exec(name, text string, args ...any) (sql.Result, error) {
	st, err := w.stmt(name, text)
	switch {
	case err != nil:
		return nil, err
	case st != nil:
		return st.ExecContext(background{}, args...)
	}
	return w.conn.ExecContext(background{}, text, args...)
}

func (w *wire) query(name, text string, args ...any) (*sql.Rows, error) {
	st, err := w.stmt(name, text)
	switch {
	case err != nil:
		return nil, err
	case st != nil:
		return st.QueryContext(background{}, args...)
	}
	return w.conn.QueryContext(background{}, text, args...)
}

// word runs a statement that is its own name.
func (w *wire) word(text string) error {
	_, err := w.exec(text, text)
	return err
}

// beginImmediate is the one statement that may wait for another process, and so ends with ctx.
func (w *wire) beginImmediate(ctx context.Context) error {
	const text = "BEGIN IMMEDIATE"
	st, err := w.stmt(text, text)
	switch {
	case err != nil:
	case ctx.Done() == nil:
		return w.word(text)
	case st != nil:
		_, err = st.ExecContext(ctx)
	default:
		_, err = w.conn.ExecContext(ctx, text)
	}
	return err
}
