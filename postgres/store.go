package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
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

// Store keeps records in PostgreSQL 13 or newer. It is safe for concurrent use and starts no goroutine of its own; the
// database handle stays the caller's, who closes it.
type Store struct {
	port  Port
	o     Options
	names sqlkit.Names
	q     map[string]query
	id    string // of the store, from table meta
	sweep sweeper

	servers servers
	events  *events
}

// New returns the store in db after checking server, role and schema; the error of a refusal names the setting and how
// to mend it. db may come from any driver whose errors have a method SQLState() string: pgx, lib/pq. It must lead to the
// primary: with several hosts in the DSN set target_session_attrs=read-write.
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	return Over(ctx, sqlPort{db}, o)
}

// Over is New over another way to the server: the store's SQL and logic are the same.
func Over(ctx context.Context, port Port, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Store{port: port, o: o, names: o.names()}
	var err error
	if s.q, err = queries(s.names); err != nil {
		return nil, err
	}
	if s.id, err = s.verify(ctx); err != nil {
		return nil, err
	}
	s.sweep.name = newSweeper()
	s.events = newEvents(s)
	return s, nil
}

// lock returns the advisory lock of one digest: 64 bits of a digest over store, tenant, operation and digest, so that
// two stores in one database, or two operations with one ID, do not share locks.
func (s *Store) lock(key idempo.Key, id string) int64 {
	b := make([]byte, 0, 256)
	for _, part := range [...]string{s.id, key.Tenant, key.Operation} {
		b = append(append(b, part...), 0)
	}
	sum := sha256.Sum256(append(b, id...))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // all 64 bits are meant
}

func contains(ids []string, id string) bool {
	return slices.Contains(ids, id)
}

// locks lists the locks of ids as one argument.
func (s *Store) locks(key idempo.Key, ids []string) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(s.lock(key, id), 10))
	}
	return b.String()
}

// lockTimeout bounds how long an own write waits for a lock, for those cases in which it meets one after all.
const lockTimeout = "1000"

// timeout is the lock_timeout argument of a write: a caller's own transaction keeps its setting.
func timeout(t *session) any {
	if t != nil && !t.own {
		return nil
	}
	return lockTimeout
}

// run runs statements in t, or on their own where t is nil. An own transaction that is not begun yet is begun. On their
// own they are tried again where the server chose them as the victim of a conflict.
func (s *Store) run(ctx context.Context, t *session, statements ...Statement) error {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		return s.runLocked(ctx, t, statements...)
	}
	for try := 0; ; try++ {
		err := s.port.Run(ctx, nil, statements...)
		if err == nil || !Conflict(err) || try == 3 || sqlState(err) == "55P03" {
			return err
		}
		if !pause(ctx, time.Duration(try+1)*5*time.Millisecond) {
			return err
		}
	}
}

func (s *Store) runLocked(ctx context.Context, t *session, statements ...Statement) error {
	if t.tx == nil {
		return t.begin(ctx, statements...)
	}
	return s.port.Run(ctx, t.tx, statements...)
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
