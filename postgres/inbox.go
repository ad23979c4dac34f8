package postgres

import (
	"cmp"
	"context"
	"slices"
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

// Inbox implements inbox.Opener. A lane is a try-lock of the transaction: it keeps order and never decides who ran.
func (s *Store) Inbox() inbox.Store { return receipts{s} }

// receipts is the inbox.Store of a Store.
type receipts struct{ s *Store }

// read collects the receipts of a statement, and the clock behind each.
type read struct {
	found []inbox.Receipt
	now   time.Time
}

func (r *read) row(more ...any) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		var row sqlkit.ReceiptRow
		if err := scan(append(append(row.Dest(), &r.now), more...)...); err != nil {
			return err
		}
		r.now = r.now.UTC()
		one, there, err := row.Receipt()
		if there {
			one.Now = r.now
			r.found = append(r.found, one)
		}
		return err
	}
}

// run runs statements in the transaction of ctx, or as one of their own.
func (r receipts) run(ctx context.Context, op string, statements ...Statement) error {
	t, err := r.s.enter(ctx, op, idempo.Key{})
	if err != nil {
		return err
	}
	if err := r.s.run(ctx, t, statements...); err != nil {
		return failed(op, idempo.Key{}, err, t != nil)
	}
	return nil
}

// entering is an Enter on its way.
type entering struct {
	e   inbox.Entered
	own read
}

// Enter implements inbox.Store.
func (r receipts) Enter(ctx context.Context, p inbox.EnterParams) (inbox.Entered, error) {
	t := carried(ctx)
	if p.Lane != "" && t == nil {
		return inbox.Entered{}, misuse("enter", idempo.Key{}, "a lane is entered in a transaction")
	}
	if t != nil {
		if e := t.entered(p); e != nil {
			return e.answer(), nil
		}
	}
	var e entering
	if err := r.run(ctx, "enter", r.entering(p, &e)...); err != nil {
		return inbox.Entered{}, err
	}
	return e.answer(), nil
}

// entering returns the statements of an Enter; what they say goes to e.
func (r receipts) entering(p inbox.EnterParams, e *entering) (all []Statement) {
	args := []any{"tenant_id", p.Tenant, "subscriber", p.Subscriber, "receipt_key", []byte(p.Key), "lane", []byte(p.Lane), "now", clock(p.Now)}
	if p.Lane != "" {
		key := idempo.Key{Tenant: p.Tenant, Operation: "lane of " + p.Subscriber}
		lock := r.s.q["lane_enter"].with(nil, "lock", r.s.lock(key, p.Lane))
		lock.Row = func(scan func(...any) error) error {
			var got bool
			err := scan(&got)
			e.e.Busy = !got
			return err
		}
		all = append(all, lock)
	}
	if p.Lane != "" || p.Key == "" {
		lane := r.s.q["lane"].with(nil, args...)
		lane.Row = func(scan func(...any) error) error {
			var version []byte
			var created, changed *time.Time
			err := scan(&e.e.Now, &version, &created, &changed, &e.e.Blocked)
			e.e.Now, e.e.Version, e.e.CreatedAt, e.e.ChangedAt = e.e.Now.UTC(), string(version), utc(created), utc(changed)
			return err
		}
		all = append(all, lane)
	}
	if p.Key != "" {
		st := r.s.q["receipt"].with(nil, args...)
		st.Row = e.own.row()
		all = append(all, st)
	}
	return all
}

func (e *entering) answer() inbox.Entered {
	if !e.own.now.IsZero() {
		e.e.Now = e.own.now
	}
	if e.e.Busy {
		return inbox.Entered{Busy: true, Now: e.e.Now}
	}
	if len(e.own.found) > 0 {
		e.e.Receipt = &e.own.found[0]
	}
	return e.e
}

// Put implements inbox.Store.
func (r receipts) Put(ctx context.Context, p inbox.PutParams) (inbox.Stored, error) {
	rc, m := p.Receipt, sqlkit.MessageValues(p.Receipt.Message)
	carried(ctx).changed(rc.Message.Lane, rc.Key)
	args := []any{"tenant_id", rc.Message.Tenant, "subscriber", rc.Subscriber, "receipt_key", []byte(rc.Key), "rev", p.Rev, "status", string(rc.Status),
		"reason", rc.Reason, "holds", rc.Holds, "source", m[0], "message_id", m[1], "message_type", m[2], "lane", m[3], "version", m[4], "headers", m[5],
		"body", m[6], "position", m[7], "message_at", m[8], "attempts", int64(rc.Attempts), "failures", sqlkit.Bytes(sqlkit.Failures(rc.Failures)),
		"due", p.Due, "delay", max(p.Delay, 0).Microseconds(), "body_for", p.BodyFor.Microseconds(), "keep_for", p.KeepFor.Microseconds(), "sealed", rc.Sealed,
		"now", clock(p.Now)}
	name := "receipt_put"
	if p.Rev != 0 {
		name = "receipt_change"
	}
	var got read
	st := r.s.q[name].with(nil, args...)
	st.Row = got.row()
	if err := r.run(ctx, "put", st); err != nil {
		return inbox.Stored{}, err
	}
	if len(got.found) > 0 {
		return inbox.Stored{Receipt: got.found[0]}, nil
	}
	// Two statements on purpose: the insert may lose to a row that its own snapshot does not show.
	st = r.s.q["receipt"].with(nil, args...)
	st.Row = got.row()
	if err := r.run(ctx, "put", st); err != nil {
		return inbox.Stored{}, err
	}
	if len(got.found) > 0 {
		return inbox.Stored{Receipt: got.found[0], Lost: true}, nil
	}
	return inbox.Stored{Lost: true}, nil
}

// Leave implements inbox.Store.
func (r receipts) Leave(ctx context.Context, p inbox.LeaveParams) error {
	var version any
	if p.Version != "" {
		version = []byte(p.Version)
	}
	args := []any{"tenant_id", p.Tenant, "subscriber", p.Subscriber, "receipt_key", []byte(p.Key), "rev", p.Rev, "lane", []byte(p.Lane),
		"version", version, "wanted", []byte(p.Wanted), "now", clock(p.Now)}
	var all []Statement
	add := func(name string) { all = append(all, r.s.q[name].with(nil, args...)) }
	if p.Key != "" {
		add("receipt_remove")
	}
	if p.Version != "" || p.Key == "" && p.Lane == "" {
		add("lane_put")
	}
	switch {
	case p.Lane == "":
	case p.Wanted != "":
		add("lane_wake_version")
	default:
		add("lane_wake")
	}
	carried(ctx).changed(p.Lane, p.Key)
	return r.run(ctx, "leave", all...)
}

// Take implements inbox.Store.
func (r receipts) Take(ctx context.Context, p inbox.TakeParams) ([]inbox.Receipt, error) {
	if carried(ctx) != nil {
		return nil, misuse("take", idempo.Key{}, "due receipts are taken outside of transactions")
	}
	if p.Limit <= 0 {
		return nil, nil
	}
	type taken struct {
		inbox.Receipt
		due time.Time
	}
	var all []taken
	var got read
	var due time.Time
	st := r.s.q["receipt_take"].with(nil, "subscriber", p.Subscriber, "limit", int64(p.Limit), "delay", p.Lease.Microseconds(), "now", clock(p.Now))
	row := got.row(&due)
	st.Row = func(scan func(...any) error) error {
		if err := row(scan); err != nil {
			return err
		}
		all = append(all, taken{got.found[len(got.found)-1], due})
		return nil
	}
	if err := r.run(ctx, "take", st); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b taken) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.Seq, b.Seq)) })
	out := make([]inbox.Receipt, len(all))
	for i, one := range all {
		out[i] = one.Receipt
	}
	return out, nil
}

// List implements inbox.Store.
func (r receipts) List(ctx context.Context, p inbox.ListParams) ([]inbox.Receipt, error) {
	return sqlkit.ListReceipts(p, func(name, status string) ([]inbox.Receipt, error) {
		var got read
		st := r.s.q[name].with(nil, "tenant_id", p.Tenant, "subscriber", p.Subscriber, "lane", []byte(p.Lane), "receipt_key", []byte(p.Key),
			"message_id", []byte(p.ID), "position", []byte(p.Position), "status", status, "since", clock(p.Since), "until", clock(p.Until),
			"after", p.After, "limit", int64(cmp.Or(p.Limit, 100)), "bodiless", p.WithoutBody, "now", clock(p.Now))
		st.Row = got.row()
		err := r.run(ctx, "list", st)
		return got.found, err
	})
}

// Sweep implements inbox.Sweeper.
func (r receipts) Sweep(ctx context.Context, p inbox.SweepParams) (done inbox.Swept, err error) {
	if carried(ctx) != nil {
		return done, misuse("sweep", idempo.Key{}, "a sweep has its own transactions")
	}
	for name, n := range map[string]*int{"receipt_sweep": &done.Receipts, "receipt_sweep_bodies": &done.Bodies} {
		st := r.s.q[name].with(nil, "subscriber", p.Subscriber, "limit", int64(p.Limit), "now", clock(p.Now))
		st.Row = func(scan func(...any) error) error { return scan(n) }
		if err := r.run(ctx, "sweep", st); err != nil {
			return done, err
		}
	}
	return done, nil
}

// Note implements inbox.Noter.
func (r receipts) Note(ctx context.Context, p inbox.NoteParams) error {
	var all []Statement
	for _, one := range p.Seen {
		all = append(all, r.s.q["receipt_note"].with(nil, "tenant_id", one.Tenant, "subscriber", p.Subscriber, "receipt_key", []byte(one.Key), "times", one.Times, "now", clock(p.Now)))
	}
	if len(all) == 0 {
		return nil
	}
	return r.run(ctx, "note", all...)
}

// Count implements inbox.Counter.
func (r receipts) Count(ctx context.Context, p inbox.CountParams) ([]inbox.Counted, error) {
	var rows []sqlkit.CountRow
	st := r.s.q["receipt_count"].with(nil, "tenant_id", p.Tenant, "subscriber", p.Subscriber, "now", clock(p.Now))
	st.Row = func(scan func(...any) error) error {
		var c sqlkit.CountRow
		err := scan(&c.Subscriber, &c.Status, &c.N, &c.Oldest, &c.Now)
		rows = append(rows, c)
		return err
	}
	if err := r.run(ctx, "count", st); err != nil {
		return nil, err
	}
	return sqlkit.Counts(rows), nil
}
