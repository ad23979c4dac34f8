package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

const (
	sweepFor   = 10 * time.Millisecond // one transaction of a sweep holds the write lock at most about so long
	sweepChunk = 50                    // rows between two looks at the time
	sweepWait  = time.Second           // a sweep waits so long for its turn, then it is another time
	sweepLease = 30 * time.Second      // a sweeper that was killed keeps others waiting so long
	rowFormat  = 1                     // rows of a newer format are not swept
)

// Sweep implements idempo.Sweeper. A batch is cut into transactions of about 10 ms with a pause as long between them,
// in which claims go on. One process sweeps at a time: in the others done is 0.
func (s *Store) Sweep(ctx context.Context, batch int) (done int, err error) {
	if t, err := s.joined(ctx, "sweep", idempo.Key{}); t != nil || err != nil {
		return 0, misuse("sweep", idempo.Key{}, "a sweep has its own transactions")
	}
	for done < batch {
		began := time.Now()
		n, more, err := s.sweepOnce(ctx, batch-done)
		done += n
		if err != nil || !more {
			return done, failure("sweep", idempo.Key{}, err, false)
		}
		pause(ctx, time.Since(began))
	}
	return done, nil
}

// sweepOnce is one short transaction. more says that there may be more to do.
func (s *Store) sweepOnce(ctx context.Context, limit int) (done int, more bool, err error) {
	soon, cancel := context.WithTimeout(ctx, sweepWait)
	defer cancel()
	if err := s.line.enter(soon, nil); err != nil {
		if ctx.Err() == nil && soon.Err() != nil {
			err = nil // a long transaction: nothing for now
		}
		return 0, false, err
	}
	defer s.leave()
	x, err := s.session(ctx)
	if err == nil {
		err = x.begin(ctx)
	}
	if err != nil {
		return 0, false, err
	}
	defer x.rollback()
	until := time.Now().Add(sweepFor)
	now := s.clock.now()
	if mine, err := x.sweepLease(now); err != nil || !mine {
		return 0, false, err
	}
	more = true
	for more && done < limit && time.Now().Before(until) {
		n, err := x.sweepChunk(now, min(sweepChunk, limit-done))
		if err != nil {
			return 0, false, err
		}
		done += n
		more = n > 0
	}
	unknown, err := x.end()
	if err != nil {
		return 0, false, failure("sweep", idempo.Key{}, err, unknown)
	}
	return done, more, nil
}

// sweepLease takes or renews the lease that lets one process sweep.
func (x *session) sweepLease(now time.Time) (bool, error) {
	var text string
	rows, err := x.query("meta", "sweep")
	if err != nil {
		return false, err
	}
	if rows.Next() {
		err = rows.Scan(&text)
	}
	if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return false, err
	}
	holder, end, _ := strings.Cut(text, " ")
	until, _ := strconv.ParseInt(end, 10, 64)
	if holder != x.s.sweeper && until > now.UnixMicro() {
		return false, nil
	}
	_, err = x.exec("set_meta", "sweep", fmt.Sprintf("%s %d", x.s.sweeper, now.Add(sweepLease).UnixMicro()))
	return true, err
}

// sweepChunk makes up to limit rows what the clock says they are.
func (x *session) sweepChunk(now time.Time, limit int) (done int, err error) {
	at := now.UnixMicro()
	n, err := x.exec("sweep_doubt", at, rowFormat, limit)
	if err != nil || int(n) >= limit {
		return int(n), err
	}
	done = int(n)
	rows, err := x.query("sweep_due", at, rowFormat, limit-done)
	if err != nil {
		return done, err
	}
	type over struct {
		tenant, operation, id []byte
		state                 string
	}
	var all []over
	for rows.Next() {
		var o over
		if err := rows.Scan(&o.tenant, &o.operation, &o.id, &o.state); err != nil {
			return done, errors.Join(err, rows.Close())
		}
		all = append(all, o)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return done, err
	}
	for _, o := range all {
		name := "sweep_remove"
		if o.state == string(idempo.StateCompleted) {
			name = "sweep_tombstone"
		}
		n, err := x.exec(name, o.tenant, o.operation, o.id, at)
		if err != nil {
			return done, err
		}
		if n == 1 && name == "sweep_remove" {
			for _, more := range []string{"remove_aliases", "remove_attempts"} {
				if _, err := x.exec(more, o.tenant, o.operation, o.id); err != nil {
					return done, err
				}
			}
		}
		done += int(n)
	}
	return done, nil
}

// Take implements idempo.Taker.
func (s *Store) Take(ctx context.Context, p idempo.TakeParams) (taken []idempo.Record, err error) {
	if t, err := s.joined(ctx, "take", idempo.Key{}); t != nil || err != nil {
		return nil, misuse("take", idempo.Key{}, "due records are taken outside of transactions")
	}
	if p.Limit <= 0 {
		return nil, nil
	}
	err = s.share(ctx, "take", idempo.Key{}, nil, func(x *session) (err error) {
		taken, err = x.take(p)
		return failure("take", idempo.Key{}, err, false)
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

func (x *session) take(p idempo.TakeParams) ([]idempo.Record, error) {
	if err := x.several(); err != nil {
		return nil, err
	}
	now := x.s.now(p.Now)
	var due []idempo.Record
	for _, op := range p.Operations {
		for _, name := range []string{"due", "lapsed"} {
			rows, err := x.query(name, now.UnixMicro(), []byte(op), p.Limit)
			if err != nil {
				return nil, err
			}
			found, err := scan(rows, false)
			if err != nil {
				return nil, err
			}
			due = append(due, found...)
		}
	}
	slices.SortStableFunc(due, func(a, b idempo.Record) int { return sqlkit.Since(a).Compare(sqlkit.Since(b)) })
	var taken []idempo.Record
	for _, r := range due {
		rec, ok := p.Judge(r, now)
		if !ok || len(taken) == p.Limit {
			continue
		}
		sqlkit.Micros(&rec)
		if err := x.update(r, rec); err != nil {
			return nil, err
		}
		taken = append(taken, rec)
	}
	return taken, nil
}

// newSweeper is a random name for this process's sweeper.
func newSweeper() string { return rand.Text() }
