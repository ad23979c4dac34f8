package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// lostClaims is the number with which the trigger of an open window refuses a claim, see epoch_open.sql.
const lostClaims = 1644

// AdvanceEpoch says that commits of the database were lost: after the promotion of an asynchronous replica, or the restore of an
// older backup. Call it before the engines go on; its user needs the rights of migrations, and TRIGGER and LOCK TABLES. It
// returns the number of the new epoch.
//
// Atomic operations need nothing of it: effect and record were lost together. Leased effects may have happened without a trace,
// so until the window ends a leased key that is not found counts as lapsed and started, and OnCrash decides: hold is in doubt,
// probe asks. Every claim that runs is lost (ErrLeaseLost). Keys that are found are believed: one that had failed, or was
// issued, and ran after the last commit that is left, runs again. Choose the window longer than the longest horizon of your
// callers; 0 ends an open one. Unlike that of PostgreSQL the store cannot tell an old primary: make it read-only (MY1).
//
// It excludes claims for the moment of the change, asks for its lock again for as long as ctx lives, and is safe to repeat.
func (s *Store) AdvanceEpoch(ctx context.Context, window time.Duration) (epoch int64, err error) {
	if window < 0 {
		return 0, &idempo.Error{Op: "advance epoch", Code: "invalid", Hint: "window: 0 or longer"}
	}
	for {
		epoch, err = s.advance(ctx, window)
		if n := s.number(err); err == nil || !conflict(n) || !pause(ctx, 50*time.Millisecond) {
			break
		}
	}
	if s.number(err) == 1419 {
		err = &idempo.Error{Op: "advance epoch", Code: "unavailable", Err: s.shown(err),
			Hint: "with a binary log a trigger takes the right SUPER, or SET GLOBAL log_bin_trust_function_creators = 1 for the while"}
	}
	return epoch, s.failed("advance epoch", idempo.Key{}, err, reading)
}

// advance is one try. A trigger that is left behind by one that was killed does nothing: the window opens with the update.
func (s *Store) advance(ctx context.Context, window time.Duration) (epoch int64, err error) {
	conn, err := s.dial(ctx, "set autocommit = 1, lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
	if err != nil {
		return 0, err
	}
	defer drop(conn) // its settings and its locks go with it
	do := func(names ...string) error {
		for _, name := range names {
			if _, err := conn.ExecContext(ctx, s.q[name].with(nil, "window", window.Microseconds()).sql); err != nil {
				return err
			}
		}
		return nil
	}
	if err := do("epoch_lock", "epoch_close"); err != nil {
		return 0, err
	}
	if window > 0 {
		if err := do("epoch_open"); err != nil {
			return 0, err
		}
	}
	if _, err := conn.ExecContext(ctx, "set autocommit = 0"); err != nil {
		return 0, err
	}
	if err := do("epoch_begin", "epoch_pending", "epoch_doubt"); err != nil {
		return 0, err
	}
	err = each(ctx, conn, s.q["epoch"].with(nil), func(scan func(...any) error) error { return scan(&epoch) })
	if err == nil {
		_, err = conn.ExecContext(ctx, "commit")
	}
	return epoch, err
}

// claimLost writes, where a claim was refused because of the epoch, what may have been lost: a record that is lapsed and started
// and has no owner. What on_crash says follows when the claim reads it.
func (s *Store) claimLost(ctx context.Context, p idempo.AcquireParams, ids []string) error {
	return s.short(ctx, "acquire", p.Key, func(x *session) error {
		r, err := s.lock(ctx, x, p.Key, ids, p.Now, wait)
		if err != nil || len(r.rows) > 0 {
			return err
		}
		a, _, err := p.Judge(idempo.Record{}, false, r.now)
		if err != nil {
			return err
		}
		rec := a.Record
		rec.Token, rec.LeaseUntil, rec.StartedAt = idempo.Token{}, r.now, r.now
		rec.Owner, rec.Note = "unknown: before the epoch", "commits of the database were lost: this key may have run before"
		sqlkit.Micros(&rec)
		if _, err = s.put(ctx, x, row{}, nil, rec, ids); errors.Is(err, errTaken) {
			return nil // somebody else's is there now
		}
		return err
	})
}
