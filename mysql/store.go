package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

var (
	_ idempo.Store      = (*Store)(nil)
	_ idempo.Transactor = (*Store)(nil)
	_ idempo.Joiner     = (*Store)(nil)
	_ idempo.Sweeper    = (*Store)(nil)
	_ idempo.Taker      = (*Store)(nil)
)

// Store keeps records in MySQL or MariaDB. It is safe for concurrent use and starts no goroutine of its own, but for the
// end of a transaction that is waited for; the database handle stays the caller's, who closes it.
type Store struct {
	db       *sql.DB
	o        Options
	names    sqlkit.Names
	q        map[string]query
	server   server
	database string // in which the tables are
	id       string // of the store, from table meta

	sweeping sync.Mutex
	sweeper  string // of this process in the sweep lease
}

// New returns the store in the database of db's connections after checking server, session and schema; the error of a
// refusal names the setting and how to mend it. It must lead to the primary.
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Store{db: db, o: o, sweeper: rand.Text()}
	if err := s.verify(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// queryer is the pool, a connection or a transaction.
type queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// exec runs a statement and returns its LAST_INSERT_ID.
func exec(ctx context.Context, on queryer, st statement) (int64, error) {
	res, err := on.ExecContext(ctx, st.sql, st.args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// each runs a query and f for each of its rows.
func each(ctx context.Context, on queryer, st statement, f func(scan func(...any) error) error) error {
	rows, err := on.QueryContext(ctx, st.sql, st.args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// execAlone is exec of a statement that is a transaction by itself. It waits at most a second for a lock, and is sent
// again where the server chose it as the victim of a conflict.
func (s *Store) execAlone(ctx context.Context, st statement) (id int64, err error) {
	for try := 1; ; try++ {
		if s.server.mariadb {
			bounded := statement{sql: "set statement innodb_lock_wait_timeout=1 for " + st.sql, args: st.args}
			id, err = exec(ctx, s.db, bounded)
		} else {
			id, err = s.execBounded(ctx, st)
		}
		if n := s.number(err); n != deadlock && n != snapshotOld || try > 3 {
			return id, err
		}
		if !pause(ctx, time.Duration(try)*5*time.Millisecond) {
			return 0, err
		}
	}
}

// execBounded is execAlone's statement on MySQL, which has no settings for one statement.
func (s *Store) execBounded(ctx context.Context, st statement) (int64, error) {
	conn, err := s.dial(ctx, s.server.boundLock)
	if err != nil {
		return 0, err
	}
	id, err := exec(ctx, conn, st)
	s.giveBack(ctx, conn, s.server.freeLock)
	return id, err
}

// pause waits for d; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
