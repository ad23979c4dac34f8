package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"sync"
	"testing"

	"github.com/idempo/idempo"
)

// fake is a driver that runs nothing: it notes what was sent and answers as on says.
type fake struct {
	mu   sync.Mutex
	sent []string
	on   func(query string) error // nil: all is well
}

func (f *fake) Connect(context.Context) (driver.Conn, error) { return &fakeConn{f: f}, nil }
func (f *fake) Driver() driver.Driver                        { return nil }

func (f *fake) send(query string) error {
	f.mu.Lock()
	f.sent = append(f.sent, query)
	on := f.on
	f.mu.Unlock()
	if on == nil {
		return nil
	}
	return on(query)
}

func (f *fake) count(query string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sent {
		if s == query {
			n++
		}
	}
	return n
}

type fakeConn struct{ f *fake }

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }
func (c *fakeConn) Ping(context.Context) error          { return nil }
func (c *fakeConn) ResetSession(context.Context) error  { return nil }
func (c *fakeConn) IsValid() bool                       { return true }
func (c *fakeConn) Commit() error                       { return c.f.send("driver commit") }
func (c *fakeConn) Rollback() error                     { return c.f.send("driver rollback") }

func (c *fakeConn) PrepareContext(_ context.Context, q string) (driver.Stmt, error) {
	return &fakeStmt{c, q}, nil
}

func (c *fakeConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return c, c.f.send("driver begin")
}

func (c *fakeConn) ExecContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), c.f.send(q)
}

func (c *fakeConn) QueryContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Rows, error) {
	return noRows{}, c.f.send(q)
}

type fakeStmt struct {
	c *fakeConn
	q string
}

func (s *fakeStmt) Close() error  { return nil }
func (s *fakeStmt) NumInput() int { return -1 }
func (s *fakeStmt) Exec([]driver.Value) (driver.Result, error) {
	return driver.RowsAffected(1), s.c.f.send(s.q)
}
func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error) { return noRows{}, s.c.f.send(s.q) }
func (s *fakeStmt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	return s.Exec(nil)
}

func (s *fakeStmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return s.Query(nil)
}

type noRows struct{}

func (noRows) Columns() []string         { return []string{"one"} }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }

// coded is an error with a result code, as modernc's.
type coded int

func (c coded) Error() string { return "driver text with a secret path" }
func (c coded) Code() int     { return int(c) }

// storeOn returns a store whose statements go to f, through the guard as those of Open do.
func storeOn(t *testing.T, f *fake) *Store {
	t.Helper()
	q, err := loadQueries(names(Options{Prefix: DefaultPrefix}))
	if err != nil {
		t.Fatal(err)
	}
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(fakeGuard{f})
	db.SetMaxOpenConns(1)
	s := &Store{writer: db, reader: db, owned: true, opts: o, queries: q, held: map[idempo.Key]*txn{}, wake: make(chan struct{}, 1)}
	s.clock.host = realHost()
	s.clock.adopt(anchor{})
	s.serving.Go(s.serve)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

type fakeGuard struct{ *fake }

// Connect guards a fake connection.
func (g fakeGuard) Connect(context.Context) (driver.Conn, error) {
	return guard(&fakeConn{f: g.fake})
}
