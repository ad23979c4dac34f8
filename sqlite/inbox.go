package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/sqlkit"
)

var (
	_ inbox.Opener  = (*Store)(nil)
	_ inbox.Sweeper = receipts{}
	_ inbox.Noter   = receipts{}
)

// Inbox implements inbox.Opener. A lane is never busy: whoever enters one holds the write lock of the file.
func (s *Store) Inbox() inbox.Store { return receipts{s} }

// receipts is the inbox.Store of a Store.
type receipts struct{ s *Store }

// querying is how a query runs: in a session, or on a reading connection.
type querying func(name string, args ...any) (*sql.Rows, error)

// write runs f under the write lock: in the transaction of ctx, or in one of its own that it may share.
func (r receipts) write(ctx context.Context, op string, f func(x *session) error) error {
	t, err := r.s.joined(ctx, op, idempo.Key{})
	if err != nil {
		return err
	}
	if t == nil {
		return r.s.share(ctx, op, idempo.Key{}, nil, func(x *session) error {
			if err := x.several(); err != nil {
				return err
			}
			return failure(op, idempo.Key{}, f(x), false)
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.own {
		if err = t.begin(ctx, nil); err == nil {
			err = t.alive() // the statements below would run without a transaction that the work has ended
		}
	} else {
		err = t.enter(r.s, op, idempo.Key{})
	}
	if err != nil {
		return err
	}
	return failure(op, idempo.Key{}, f(t.x), false)
}

// read runs f in the transaction of ctx, or without a lock.
func (r receipts) read(ctx context.Context, op string, f func(q querying) error) error {
	t, err := r.s.joined(ctx, op, idempo.Key{})
	if err != nil {
		return err
	}
	if t != nil {
		return r.write(ctx, op, func(x *session) error { return f(x.query) })
	}
	err = f(func(name string, args ...any) (*sql.Rows, error) { return r.s.readRows(ctx, name, args...) })
	return failure(op, idempo.Key{}, err, false)
}

// scanReceipts reads receipts and closes rows.
func scanReceipts(rows *sql.Rows, now time.Time) (found []inbox.Receipt, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		row := sqlkit.ReceiptRow{Micros: true}
		dest := row.Dest()
		for i, d := range dest {
			if p, ok := d.(*[]byte); ok {
				dest[i] = blob{p}
			}
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		one, there, err := row.Receipt()
		if err != nil {
			return nil, err
		}
		if one.Now = now; there {
			found = append(found, one)
		}
	}
	return found, rows.Err()
}

// one reads the receipt of a key.
func one(q querying, now time.Time, tenant, subscriber, key string) (*inbox.Receipt, error) {
	rows, err := q("receipt", []byte(tenant), []byte(subscriber), []byte(key))
	if err != nil {
		return nil, err
	}
	found, err := scanReceipts(rows, now)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// Enter implements inbox.Store.
func (r receipts) Enter(ctx context.Context, p inbox.EnterParams) (e inbox.Entered, err error) {
	if t, err := r.s.joined(ctx, "enter", idempo.Key{}); p.Lane != "" && t == nil {
		return e, cmp.Or(err, misuse("enter", idempo.Key{}, "a lane is entered in a transaction"))
	}
	err = r.read(ctx, "enter", func(q querying) error {
		e.Now = r.s.now(p.Now)
		if p.Lane != "" || p.Key == "" {
			if err := laneOf(q, &e, p); err != nil {
				return err
			}
		}
		if p.Key == "" {
			return nil
		}
		var err error
		e.Receipt, err = one(q, e.Now, p.Tenant, p.Subscriber, p.Key)
		return err
	})
	if err != nil {
		return inbox.Entered{}, err
	}
	return e, nil
}

// Put implements inbox.Store.
func (r receipts) Put(ctx context.Context, p inbox.PutParams) (st inbox.Stored, err error) {
	rc, m := p.Receipt, sqlkit.MessageValues(p.Receipt.Message)
	key := []any{[]byte(rc.Message.Tenant), []byte(rc.Subscriber), []byte(rc.Key)}
	failures := sqlkit.Bytes(sqlkit.Failures(rc.Failures))
	err = r.write(ctx, "put", func(x *session) error {
		now := r.s.now(p.Now)
		var next any
		if p.Due {
			next = now.Add(max(p.Delay, 0)).UnixMicro()
		}
		later := func(d time.Duration) any {
			if d <= 0 {
				return nil
			}
			return now.Add(d).UnixMicro()
		}
		body, gone := later(p.BodyFor), later(p.KeepFor)
		args := append(key[:3:3], string(rc.Status), rc.Reason, rc.Holds)
		var n int64
		var err error
		if p.Rev == 0 {
			args = append(append(args, m...), rc.Attempts, failures, now.UnixMicro(), next, rc.Sealed, body, gone)
			n, err = x.exec("receipt_put", args...)
		} else {
			n, err = x.exec("receipt_change", append(args, rc.Attempts, failures, now.UnixMicro(), next, p.Rev, body, gone)...)
		}
		if err != nil {
			return err
		}
		got, err := one(x.query, now, rc.Message.Tenant, rc.Subscriber, rc.Key)
		if err != nil {
			return err
		}
		if st = (inbox.Stored{Lost: n == 0}); got != nil {
			st.Receipt = *got
		}
		return nil
	})
	return st, err
}

// Leave implements inbox.Store.
func (r receipts) Leave(ctx context.Context, p inbox.LeaveParams) error {
	return r.write(ctx, "leave", func(x *session) error {
		now := r.s.now(p.Now).UnixMicro()
		who, lane := []any{[]byte(p.Tenant), []byte(p.Subscriber)}, []byte(p.Lane)
		if p.Key != "" {
			if _, err := x.exec("receipt_remove", append(who[:2:2], []byte(p.Key), p.Rev)...); err != nil {
				return err
			}
		}
		if p.Version != "" || p.Key == "" && p.Lane == "" {
			var version any
			if p.Version != "" {
				version = []byte(p.Version)
			}
			if _, err := x.exec("lane_put", append(who[:2:2], lane, version, now)...); err != nil {
				return err
			}
		}
		var err error
		switch {
		case p.Lane == "":
		case p.Wanted != "":
			_, err = x.exec("lane_wake_version", append(who[:2:2], lane, now, []byte(p.Wanted))...)
		default:
			_, err = x.exec("lane_wake", append(who[:2:2], lane, now)...)
		}
		return err
	})
}

// Take implements inbox.Store. Where nothing is due nobody waits for the write lock.
func (r receipts) Take(ctx context.Context, p inbox.TakeParams) (taken []inbox.Receipt, err error) {
	if t, err := r.s.joined(ctx, "take", idempo.Key{}); t != nil || err != nil {
		return nil, misuse("take", idempo.Key{}, "due receipts are taken outside of transactions")
	}
	due := func(q querying) ([]inbox.Receipt, error) {
		now := r.s.now(p.Now)
		rows, err := q("receipt_due", []byte(p.Subscriber), now.UnixMicro(), p.Limit)
		if err != nil {
			return nil, err
		}
		return scanReceipts(rows, now)
	}
	if p.Limit <= 0 {
		return nil, nil
	}
	some := false
	err = r.read(ctx, "take", func(q querying) error {
		found, err := due(q)
		some = len(found) > 0
		return err
	})
	if err != nil || !some {
		return nil, err
	}
	err = r.write(ctx, "take", func(x *session) error {
		taken = nil
		found, err := due(x.query)
		for _, one := range found {
			one.Rev, one.Attempts, one.ChangedAt, one.NextAt = one.Rev+1, one.Attempts+1, one.Now, micro(one.Now.Add(p.Lease))
			if _, err := x.exec("receipt_taken", one.Seq, one.ChangedAt.UnixMicro(), one.NextAt.UnixMicro()); err != nil {
				return err
			}
			taken = append(taken, one)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// List implements inbox.Store on a reading connection.
func (r receipts) List(ctx context.Context, p inbox.ListParams) (found []inbox.Receipt, err error) {
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UnixMicro()
	}
	err = r.read(ctx, "list", func(q querying) (err error) {
		found, err = sqlkit.ListReceipts(p, func(name, status string) ([]inbox.Receipt, error) {
			args := []any{[]byte(p.Subscriber), p.After, []byte(p.Tenant), []byte(p.Lane), p.WithoutBody, at(p.Since), at(p.Until), cmp.Or(p.Limit, 100)}
			switch {
			case p.Key != "":
				args = append(args, []byte(p.Key))
			case p.ID != "":
				args = append(args, []byte(p.ID))
			case p.Position != "":
				args = append(args, []byte(p.Position), []byte(p.Position+"/"), []byte(p.Position+"0"))
			case status != "":
				args = append(args, status)
			}
			rows, err := q(name, args...)
			if err != nil {
				return nil, err
			}
			return scanReceipts(rows, r.s.now(p.Now))
		})
		return err
	})
	return found, err
}

// Sweep implements inbox.Sweeper. Each of its two statements is a short transaction.
func (r receipts) Sweep(ctx context.Context, p inbox.SweepParams) (done inbox.Swept, err error) {
	if t, err := r.s.joined(ctx, "sweep", idempo.Key{}); t != nil || err != nil {
		return done, misuse("sweep", idempo.Key{}, "a sweep has its own transactions")
	}
	for name, n := range map[string]*int{"receipt_sweep": &done.Receipts, "receipt_sweep_bodies": &done.Bodies} {
		err := r.write(ctx, "sweep", func(x *session) error {
			rows, err := x.exec(name, []byte(p.Subscriber), r.s.now(p.Now).UnixMicro(), p.Limit)
			*n = int(rows)
			return err
		})
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// Note implements inbox.Noter.
func (r receipts) Note(ctx context.Context, p inbox.NoteParams) error {
	if len(p.Seen) == 0 {
		return nil
	}
	return r.write(ctx, "note", func(x *session) error {
		for _, one := range p.Seen {
			if _, err := x.exec("receipt_note", []byte(one.Tenant), []byte(p.Subscriber), []byte(one.Key), one.Times, r.s.now(p.Now).UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
}

// laneOf reads the row of a lane into e.
func laneOf(q querying, e *inbox.Entered, p inbox.EnterParams) error {
	rows, err := q("lane", []byte(p.Tenant), []byte(p.Subscriber), []byte(p.Lane), []byte(p.Key))
	if err != nil {
		return err
	}
	var version []byte
	var created, changed *int64
	if rows.Next() {
		err = rows.Scan(&version, &created, &changed, &e.Blocked)
	}
	if changed != nil {
		e.ChangedAt = time.UnixMicro(*changed).UTC()
	}
	if created != nil {
		e.CreatedAt = time.UnixMicro(*created).UTC()
	}
	e.Version = string(version)
	return errors.Join(err, rows.Err(), rows.Close())
}

// Count implements inbox.Counter.
func (r receipts) Count(ctx context.Context, p inbox.CountParams) ([]inbox.Counted, error) {
	var all []sqlkit.CountRow
	err := r.read(ctx, "count", func(q querying) error {
		rows, err := q("receipt_count", []byte(p.Tenant), []byte(p.Subscriber))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			c := sqlkit.CountRow{Now: r.s.now(p.Now).UnixMicro()}
			if err := rows.Scan(&c.Subscriber, &c.Status, &c.N, &c.Oldest); err != nil {
				return err
			}
			all = append(all, c)
		}
		return rows.Err()
	})
	return sqlkit.Counts(all), err
}
