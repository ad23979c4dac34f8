package mysql

import (
	"cmp"
	"context"
	"strconv"
	"strings"
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

// Inbox implements inbox.Opener. A lane is the lock of its row: it keeps order and never decides who ran.
func (s *Store) Inbox() inbox.Store { return receipts{s} }

// receipts is the inbox.Store of a Store.
type receipts struct{ s *Store }

// write runs f in the transaction of ctx, or in one of its own, again where the server gives that up.
func (r receipts) write(ctx context.Context, op string, f func(x *session) error) error {
	t, err := r.s.enter(ctx, op, idempo.Key{})
	switch {
	case err != nil:
		return err
	case t == nil:
		return r.s.short(ctx, op, idempo.Key{}, f)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on == nil {
		if err := t.begin(ctx); err != nil {
			return r.s.failed("begin", idempo.Key{}, err, reading)
		}
	}
	return r.s.failed(op, idempo.Key{}, f(t), inside)
}

// read runs f in the transaction of ctx, or on any connection.
func (r receipts) read(ctx context.Context, op string, f func(on queryer) error) error {
	if carried(ctx) != nil {
		return r.write(ctx, op, func(x *session) error { return f(x.on) })
	}
	if _, err := r.s.enter(ctx, op, idempo.Key{}); err != nil {
		return err
	}
	return r.s.failed(op, idempo.Key{}, f(r.s.db), reading)
}

// moment is a time for a column: given, or the server's clock.
func moment(given time.Time) any {
	if given.IsZero() {
		return raw("(timestamp'1970-01-01 00:00:00' + interval (" + clock + ") microsecond)")
	}
	return given
}

// found runs a query of receipts, and returns the clock that it read too, if it has rows.
func (r receipts) found(ctx context.Context, on queryer, name string, args ...any) (all []inbox.Receipt, now time.Time, err error) {
	err = each(ctx, on, r.s.q[name].with(nil, args...), func(scan func(...any) error) error {
		row := sqlkit.ReceiptRow{Micros: true}
		var at int64
		if err := scan(append(row.Dest(), &at)...); err != nil {
			return err
		}
		now = time.UnixMicro(at).UTC()
		one, there, err := row.Receipt()
		if one.Now = now; there {
			all = append(all, one)
		}
		return err
	})
	return all, now, err
}

// Enter implements inbox.Store.
func (r receipts) Enter(ctx context.Context, p inbox.EnterParams) (e inbox.Entered, err error) {
	args := []any{"tenant_id", p.Tenant, "subscriber", p.Subscriber, "receipt_key", p.Key, "lane", p.Lane, "clock", at(p.Now), "at", moment(p.Now)}
	look := func(on queryer) error {
		if p.Lane != "" || p.Key == "" {
			if err := r.lane(ctx, on, &e, args); err != nil {
				return err
			}
		}
		if p.Key == "" {
			return nil
		}
		found, now, err := r.found(ctx, on, "receipt", append(args, "lock", raw(""))...)
		if e.Now = now; len(found) > 0 {
			e.Receipt = &found[0]
		}
		return err
	}
	switch {
	case p.Lane == "":
		err = r.read(ctx, "enter", look)
	case carried(ctx) == nil:
		err = misuse("enter", idempo.Key{}, "a lane is entered in a transaction")
	default:
		err = r.write(ctx, "enter", func(x *session) error {
			busy, err := r.take(ctx, x, args)
			if busy || err != nil {
				e.Busy = busy
				return err
			}
			return look(x.on)
		})
	}
	if err != nil {
		return inbox.Entered{}, err
	}
	return e, nil
}

// take locks a lane until x ends, or says that it is busy. A lane without a row gets one that is inserted and deleted: the
// lock stays, and nothing else.
func (r receipts) take(ctx context.Context, x *session, args []any) (busy bool, err error) {
	there := false
	err = each(ctx, x.on, r.s.q["lane_lock"].with(nil, args...), func(scan func(...any) error) error {
		there = true
		var one int
		return scan(&one)
	})
	if err == nil && !there {
		insert := r.s.q["lane_take"].with(nil, args...)
		if r.s.server.mariadb { // elsewhere who comes at the same moment waits, at most a second
			insert.sql = "set statement innodb_lock_wait_timeout=0 for " + insert.sql
		}
		var won int64
		if won, err = exec(ctx, x.on, insert); err == nil && won == isNew {
			_, err = exec(ctx, x.on, r.s.q["lane_untake"].with(nil, args...))
		}
	}
	if n := r.s.number(err); (n == lockNowait || n == lockTimeout) && !r.s.server.rollsBack {
		return true, nil
	}
	return false, err
}

// lane reads the row of a lane into e.
func (r receipts) lane(ctx context.Context, on queryer, e *inbox.Entered, args []any) error {
	return each(ctx, on, r.s.q["lane"].with(nil, args...), func(scan func(...any) error) error {
		var version []byte
		var now int64
		var created, changed *int64
		err := scan(&now, &version, &created, &changed, &e.Blocked)
		e.Now, e.Version = time.UnixMicro(now).UTC(), string(version)
		if created != nil {
			e.CreatedAt = time.UnixMicro(*created).UTC()
		}
		if changed != nil {
			e.ChangedAt = time.UnixMicro(*changed).UTC()
		}
		return err
	})
}

// Put implements inbox.Store.
func (r receipts) Put(ctx context.Context, p inbox.PutParams) (st inbox.Stored, err error) {
	rc, m := p.Receipt, p.Receipt.Message
	var sent any
	if !m.Time.IsZero() {
		sent = m.Time.Truncate(time.Microsecond)
	}
	args := []any{"tenant_id", m.Tenant, "subscriber", rc.Subscriber, "receipt_key", rc.Key, "rev", p.Rev, "status", string(rc.Status),
		"reason", rc.Reason, "holds", rc.Holds, "source", m.Source, "message_id", m.ID, "message_type", m.Type, "lane", m.Lane, "version", m.Version,
		"headers", sqlkit.Bytes(sqlkit.Headers(m.Headers)), "body", sqlkit.Bytes(m.Body), "position", m.Position, "message_at", sent,
		"attempts", int64(rc.Attempts), "failures", sqlkit.Bytes(sqlkit.Failures(rc.Failures)), "due", p.Due, "delay", max(p.Delay, 0).Microseconds(),
		"sealed", rc.Sealed, "body_for", max(p.BodyFor, 0).Microseconds(), "keep_for", max(p.KeepFor, 0).Microseconds(),
		"at", moment(p.Now), "clock", at(p.Now), "lock", raw("for update")}
	err = r.write(ctx, "put", func(x *session) error {
		st = inbox.Stored{}
		if p.Rev == 0 {
			seq, err := exec(ctx, x.on, r.s.q["receipt_put"].with(nil, args...))
			if err != nil {
				return err
			}
			st.Lost = seq == 0
		} else if st.Lost, err = r.change(ctx, x, p, args); err != nil {
			return err
		}
		found, _, err := r.found(ctx, x.on, "receipt", args...)
		if len(found) > 0 {
			st.Receipt = found[0]
		}
		return err
	})
	return st, err
}

// change writes the successor of a revision, if that is the one that is there.
func (r receipts) change(ctx context.Context, x *session, p inbox.PutParams, args []any) (lost bool, err error) {
	found, now, err := r.found(ctx, x.on, "receipt", args...)
	if err != nil || len(found) == 0 || found[0].Rev != p.Rev {
		return true, err
	}
	args = append(args, "changed_at", now)
	later := func(name string, set bool, d time.Duration) {
		if set {
			args = append(args, name, now.Add(max(d, 0)).Truncate(time.Microsecond))
		}
	}
	later("next_at", p.Due, p.Delay)
	later("body_until", p.BodyFor > 0, p.BodyFor)
	later("gone_at", p.KeepFor > 0, p.KeepFor)
	_, err = exec(ctx, x.on, r.s.q["receipt_change"].with(nil, args...))
	return false, err
}

// Leave implements inbox.Store.
func (r receipts) Leave(ctx context.Context, p inbox.LeaveParams) error {
	var version any
	if p.Version != "" {
		version = p.Version
	}
	args := []any{"tenant_id", p.Tenant, "subscriber", p.Subscriber, "receipt_key", p.Key, "rev", p.Rev, "lane", p.Lane,
		"version", version, "wanted", p.Wanted, "at", moment(p.Now)}
	var names []string
	if p.Key != "" {
		names = append(names, "receipt_remove")
	}
	if p.Version != "" || p.Key == "" && p.Lane == "" {
		names = append(names, "lane_put")
	}
	switch {
	case p.Lane == "":
	case p.Wanted != "":
		names = append(names, "lane_wake_version")
	default:
		names = append(names, "lane_wake")
	}
	return r.write(ctx, "leave", func(x *session) error {
		for _, name := range names {
			if _, err := exec(ctx, x.on, r.s.q[name].with(nil, args...)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Take implements inbox.Store. Where nothing is due no transaction is begun.
func (r receipts) Take(ctx context.Context, p inbox.TakeParams) (taken []inbox.Receipt, err error) {
	if carried(ctx) != nil {
		return nil, misuse("take", idempo.Key{}, "due receipts are taken outside of transactions")
	}
	if p.Limit <= 0 {
		return nil, nil
	}
	due := func(on queryer, limit int, lock raw) ([]inbox.Receipt, error) {
		found, _, err := r.found(ctx, on, "receipt_due", "subscriber", p.Subscriber, "limit", int64(limit), "lock", lock, "at", moment(p.Now), "clock", at(p.Now))
		return found, err
	}
	some := false
	err = r.read(ctx, "take", func(on queryer) error {
		found, err := due(on, 1, "")
		some = len(found) > 0
		return err
	})
	if err != nil || !some {
		return nil, err
	}
	err = r.write(ctx, "take", func(x *session) error {
		taken, err = due(x.on, p.Limit, "for update skip locked")
		if err != nil || len(taken) == 0 {
			return err
		}
		var seqs []string
		now := taken[0].Now
		for i := range taken {
			one := &taken[i]
			one.Rev, one.Attempts, one.ChangedAt, one.NextAt, one.Now = one.Rev+1, one.Attempts+1, now, now.Add(p.Lease).Truncate(time.Microsecond), now
			seqs = append(seqs, strconv.FormatInt(one.Seq, 10))
		}
		_, err = exec(ctx, x.on, r.s.q["receipt_taken"].with(nil, "changed_at", now, "next_at", taken[0].NextAt, "seqs", raw(strings.Join(seqs, ","))))
		return err
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// List implements inbox.Store.
func (r receipts) List(ctx context.Context, p inbox.ListParams) (found []inbox.Receipt, err error) {
	given := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t
	}
	err = r.read(ctx, "list", func(on queryer) (err error) {
		found, err = sqlkit.ListReceipts(p, func(name, status string) ([]inbox.Receipt, error) {
			found, _, err := r.found(ctx, on, name, "tenant_id", p.Tenant, "subscriber", p.Subscriber, "lane", p.Lane, "receipt_key", p.Key,
				"message_id", p.ID, "position", p.Position, "status", status, "since", given(p.Since), "until", given(p.Until),
				"after", p.After, "limit", int64(cmp.Or(p.Limit, 100)), "bodiless", p.WithoutBody, "clock", at(p.Now))
			return found, err
		})
		return err
	})
	return found, err
}

// Sweep implements inbox.Sweeper.
func (r receipts) Sweep(ctx context.Context, p inbox.SweepParams) (done inbox.Swept, err error) {
	if carried(ctx) != nil {
		return done, misuse("sweep", idempo.Key{}, "a sweep has its own transactions")
	}
	for name, n := range map[string]*int{"receipt_sweep": &done.Receipts, "receipt_sweep_bodies": &done.Bodies} {
		err := r.write(ctx, "sweep", func(x *session) error {
			rows, err := x.on.ExecContext(ctx, r.s.q[name].with(nil, "subscriber", p.Subscriber, "limit", int64(p.Limit), "at", moment(p.Now)).sql)
			if err != nil {
				return err
			}
			count, err := rows.RowsAffected()
			*n = int(count)
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
			_, err := exec(ctx, x.on, r.s.q["receipt_note"].with(nil, "tenant_id", one.Tenant, "subscriber", p.Subscriber, "receipt_key", one.Key,
				"times", one.Times, "at", moment(p.Now)))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Count implements inbox.Counter.
func (r receipts) Count(ctx context.Context, p inbox.CountParams) ([]inbox.Counted, error) {
	var rows []sqlkit.CountRow
	err := r.read(ctx, "count", func(on queryer) error {
		return each(ctx, on, r.s.q["receipt_count"].with(nil, "tenant_id", p.Tenant, "subscriber", p.Subscriber, "clock", at(p.Now)), func(scan func(...any) error) error {
			var c sqlkit.CountRow
			err := scan(&c.Subscriber, &c.Status, &c.N, &c.Oldest, &c.Now)
			rows = append(rows, c)
			return err
		})
	})
	return sqlkit.Counts(rows), err
}
