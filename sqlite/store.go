package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// Store keeps records in one SQLite file. All methods are safe for concurrent use.
type Store struct {
	writer, reader *sql.DB // of New: the same
	owned          bool    // Close closes them
	opts           Options
	names          sqlkit.Names
	queries        queries
	id             string // of table meta
	sweeper        string // who holds the sweep lease
	clock          clock
	line           queue
	wake           chan struct{}  // to the goroutine that commits works
	serving        sync.WaitGroup // that goroutine
	kept           *wire          // of whoever holds the line

	mu   sync.Mutex
	held map[idempo.Key]*txn // keys that an open transaction of this process has won and not written yet
}

// Open opens or makes the file at path with driver "sqlite" (modernc.org/sqlite) or "sqlite3"
// (github.com/mattn/go-sqlite3), which the program must link, and brings its schema up to date. Every connection has
// WAL, synchronous=FULL, the busy timeout and immediate transactions. The caller calls Close at the end.
//
// It refuses, with the reason: a database in memory, a file that is none of SQLite's, a folder that cannot be written,
// a network file system (told on Linux only), a schema newer than this release.
func Open(ctx context.Context, driver, path string, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := dsn(driver, path, o.BusyTimeout, false); err != nil {
		return nil, err
	}
	if path, err = place(path); err != nil {
		return nil, err
	}
	s, err := open(ctx, driver, path, o)
	if err != nil {
		return nil, opening(err)
	}
	return s, nil
}

func open(ctx context.Context, driver, path string, o Options) (*Store, error) {
	handle := func(readOnly bool, conns int) (*sql.DB, error) {
		name, err := dsn(driver, path, o.BusyTimeout, readOnly)
		if err != nil {
			return nil, err
		}
		db, err := guardedDB(driver, name)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		return db, nil
	}
	writer, err := handle(false, 1)
	if err != nil {
		return nil, err
	}
	reader, err := handle(true, o.Readers)
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	s := &Store{writer: writer, reader: reader, owned: true, opts: o}
	err = Migrate(ctx, writer, o)
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// New uses the caller's own handle, on the file where the effects are written. It does not migrate (see Migrate) and
// does not close db. It refuses, naming the parameter to put in the DSN, if a connection of db is not in WAL mode, not
// synchronous=FULL or EXTRA, waits less than a second for a lock, or begins transactions that are not immediate.
//
// Give it a handle with more than one connection, so that reading does not wait for a transaction.
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkConnections(ctx, db, o); err != nil {
		return nil, opening(err)
	}
	s := &Store{writer: db, reader: db, opts: o}
	if err := s.start(ctx); err != nil {
		return nil, opening(err)
	}
	return s, nil
}

// start checks the schema, reads the store's identity and prepares its statements.
func (s *Store) start(ctx context.Context) error {
	s.names = names(s.opts)
	s.held = map[idempo.Key]*txn{}
	s.clock.host = realHost()
	s.sweeper = newSweeper()
	err := checkSchema(ctx, s.reader, s.opts)
	if err != nil {
		return err
	}
	if s.queries, err = loadQueries(s.names); err != nil {
		return err
	}
	id, err := s.reading(ctx, "meta")
	if err != nil {
		return fmt.Errorf("sqlite: read table meta: %w", shown(err))
	}
	if err := id.QueryRowContext(ctx, "store_id").Scan(&s.id); err != nil {
		return fmt.Errorf("sqlite: table meta has no store id: %w", shown(err))
	}
	rows, err := id.QueryContext(ctx, "clock")
	if err != nil {
		return fmt.Errorf("sqlite: read the clock: %w", shown(err))
	}
	a, err := readAnchor(rows)
	if err != nil {
		return fmt.Errorf("sqlite: read the clock: %w", shown(err))
	}
	s.clock.adopt(a)
	s.wake = make(chan struct{}, 1)
	s.serving.Go(s.serve)
	return nil
}

// Close refuses new calls (code unavailable), waits for the transactions that run, and closes the connections that Open
// made. Closing twice is no error.
func (s *Store) Close() error {
	if first := s.line.close(); first && s.wake != nil {
		close(s.wake)
	}
	s.serving.Wait()
	s.queries.close()
	if !s.owned {
		return nil
	}
	s.dropWire()
	return errors.Join(shown(s.reader.Close()), shown(s.writer.Close()))
}

// now is the store's clock to the microsecond; given wins unless it is zero.
func (s *Store) now(given time.Time) time.Time {
	if given.IsZero() {
		return s.clock.now()
	}
	return micro(given)
}

// opening words an error of Open and New whose cause is a driver's.
func opening(err error) error {
	if resultCode(err) == 0 {
		return err
	}
	if _, ok := errors.AsType[*cause](err); ok {
		return err
	}
	return fmt.Errorf("sqlite: open: %w", shown(err))
}
