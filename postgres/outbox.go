package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/outbox"
)

var (
	_ outbox.Opener = (*Store)(nil)
	_ outbox.Store  = (*events)(nil)
	_ outbox.Beller = (*events)(nil)
)

// Outbox implements outbox.Opener.
func (s *Store) Outbox() (outbox.Store, outbox.Desk) { return s.events, s.events }

// events is the outbox.Store of a Store. DESIGN.md says how its cursors see every commit.
type events struct {
	sqlkit.Outbox
	s    *Store
	bell outbox.Bell

	mu    sync.Mutex
	life  string               // of the server, as table outbox_alive names it
	last  int64                // a sequence value read in that life
	safe  int64                // one that was read before a transaction got its number that has ended by now
	still map[string]time.Time // when a group was last told to go on though nothing was new
	marks map[int64]lsnMark    // by slot
}

func newEvents(s *Store) *events {
	e := &events{s: s, still: map[string]time.Time{}, marks: map[int64]lsnMark{}}
	e.DB = sqlkit.OutboxDB{Parts: outbox.Partitions, Within: e.within, Identity: e.identity, Wake: e.wake, Loaded: e.loaded, Newest: e.newCursor,
		Advance: e.advance, Reading: e.reading, Around: e.around, Adopt: e.adopt, Audited: e.audited}
	return e
}

// Bell implements outbox.Beller.
func (e *events) Bell() *outbox.Bell { return &e.bell }

// eventRow is an event on its way into the log.
type eventRow struct {
	N           int     `json:"n"`
	Part        int     `json:"part"`
	ID          string  `json:"id"`
	Source      string  `json:"source"`
	Tenant      string  `json:"tenant"`
	Topic       string  `json:"topic"`
	Key         *string `json:"key,omitempty"`
	Type        string  `json:"type"`
	Content     *string `json:"content,omitempty"`
	Headers     *string `json:"headers,omitempty"`
	Parent      *string `json:"parent,omitempty"`
	State       *string `json:"state,omitempty"`
	Correlation *string `json:"correlation,omitempty"`
	Ref         *string `json:"ref,omitempty"`
	Sealed      *string `json:"sealed,omitempty"`
	Place       int     `json:"place"`
	Size        *int    `json:"size,omitempty"` // nil: the payload is
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// A statement takes so many events, or so many bytes of payload, whichever is reached first.
const (
	appendRows  = 1000
	appendBytes = 4 << 20
)

// Append implements outbox.Store.
func (e *events) Append(ctx context.Context, p outbox.AppendParams) (outbox.Appended, error) {
	t, err := e.s.enter(ctx, "append", idempo.Key{})
	switch own, ok := errors.AsType[*idempo.Error](err); {
	case err != nil && ok && own.Code == "tx_ended":
		return outbox.Appended{}, fmt.Errorf("%w: %w", outbox.ErrNoTx, err)
	case err != nil:
		return outbox.Appended{}, err
	case t == nil:
		return outbox.Appended{}, outbox.ErrNoTx
	}
	var at time.Time
	var all []Statement
	locks := ""
	if p.Lock {
		locks = e.keys(p.Rows)
	}
	for from := 0; from < len(p.Rows); {
		rows, payload, next := pack(p.Rows, from)
		text, err := json.Marshal(rows)
		if err != nil {
			return outbox.Appended{}, misuse("append", idempo.Key{}, "the event cannot be written as JSON")
		}
		st := e.s.q["outbox_append"].with(nil, "locks", locks, "rows_json", string(text), "payload", payload, "now", clock(p.Now))
		st.Row = func(scan func(...any) error) error { return scan(&at) }
		all, locks, from = append(all, st), "", next
	}
	if err := e.s.run(ctx, t, all...); err != nil {
		err = failed("append", idempo.Key{}, err, true)
		if own, ok := errors.AsType[*idempo.Error](err); ok && own.Code == "tx_ended" {
			err = fmt.Errorf("%w: %w", outbox.ErrNoTx, err)
		}
		return outbox.Appended{}, err
	}
	return outbox.Appended{Time: at.UTC()}, nil
}

// keys lists the locks of the rows' keys in one order for all callers.
func (e *events) keys(rows []outbox.Row) string {
	var locks []int64
	for _, r := range rows {
		if r.Key != "" {
			locks = append(locks, e.s.lock(idempo.Key{Tenant: r.Tenant, Operation: "outbox"}, r.Key))
		}
	}
	slices.Sort(locks)
	var b strings.Builder
	for i, l := range slices.Compact(locks) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(l, 10))
	}
	return b.String()
}

// pack makes one statement's worth of rows from from on: the payloads stand one behind the other.
func pack(all []outbox.Row, from int) (rows []eventRow, payload []byte, next int) {
	payload = []byte{}
	for next = from; next < len(all) && len(rows) < appendRows && (len(rows) == 0 || len(payload)+len(all[next].Payload) <= appendBytes); next++ {
		r := &all[next]
		row := eventRow{N: len(rows), Part: r.Partition, ID: r.ID, Source: r.Source, Tenant: r.Tenant, Topic: r.Topic, Key: orNil(r.Key), Type: r.Type,
			Content: orNil(r.ContentType), Headers: orNil(sqlkit.EventHeaders(r.Headers)), Parent: orNil(r.Trace.Parent), State: orNil(r.Trace.State),
			Correlation: orNil(r.Trace.Correlation), Ref: orNil(r.Trace.KeyRef), Sealed: orNil(r.Sealed), Place: len(payload) + 1}
		if r.Payload != nil {
			row.Size = new(len(r.Payload))
		}
		payload = append(payload, r.Payload...)
		rows = append(rows, row)
	}
	return rows, payload, next
}

// outboxTx is the sqlkit.OutboxTx of a transaction of the port.
type outboxTx struct {
	ctx context.Context
	s   *Store
	tx  PortTx
}

func (x *outboxTx) run(st Statement) error { return x.s.port.Run(x.ctx, x.tx, st) }

// Exec implements sqlkit.OutboxTx.
func (x *outboxTx) Exec(name string, args ...any) error {
	return x.run(x.s.q[name].with(nil, args...))
}

// Each implements sqlkit.OutboxTx.
func (x *outboxTx) Each(name string, row func(scan func(...any) error) error, args ...any) error {
	st := x.s.q[name].with(nil, args...)
	st.Row = row
	return x.run(st)
}

// Now implements sqlkit.OutboxTx.
func (x *outboxTx) Now() (at time.Time, err error) {
	var us int64
	err = x.Each("outbox_clock", func(scan func(...any) error) error { return scan(&us) })
	return time.UnixMicro(us).UTC(), err
}

// within is sqlkit.OutboxDB.Within.
func (e *events) within(ctx context.Context, op string, fn func(sqlkit.OutboxTx) error) error {
	if carried(ctx) != nil {
		return misuse(op, idempo.Key{}, "a relay works outside of transactions")
	}
	for try := 0; ; try++ {
		err := e.once(ctx, op, fn)
		if err == nil || !Conflict(err) || try == 5 || !pause(ctx, time.Duration(try+1)*5*time.Millisecond) {
			return e.failed(op, err)
		}
	}
}

// once runs fn in a transaction that gets a number of its own: it locks a row first.
func (e *events) once(ctx context.Context, op string, fn func(sqlkit.OutboxTx) error) error {
	l, err := e.lookAlone(ctx, op, "")
	if err != nil {
		return err
	}
	tx, err := e.s.port.Begin(ctx)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			_ = e.s.port.Rollback(ctx, tx)
		}
	}()
	if err := fn(&outboxTx{ctx, e.s, tx}); err != nil {
		return err
	}
	done = true
	if err := e.s.port.Commit(ctx, tx); err != nil {
		return err
	}
	e.passed(l.life, l.last)
	return nil
}

// failed is an error as a relay learns of it.
func (e *events) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{outbox.ErrEnvironment, outbox.ErrForeignDatabase, outbox.ErrFrom, outbox.ErrGroup, outbox.ErrKept} {
		if errors.Is(err, known) {
			return err
		}
	}
	if sqlState(err) == "25006" {
		return fmt.Errorf("%w: %w", outbox.ErrStandby, failed(op, idempo.Key{}, err, false))
	}
	return failed(op, idempo.Key{}, err, false)
}

// run runs statements that are a transaction by themselves.
func (e *events) run(ctx context.Context, op string, statements ...Statement) error {
	if carried(ctx) != nil {
		return misuse(op, idempo.Key{}, "a relay works outside of transactions")
	}
	return e.failed(op, e.s.run(ctx, nil, statements...))
}

// identity is sqlkit.OutboxDB.Identity: system identifier and database oid, and that no cursor has seen more than this
// server ever did.
func (e *events) identity(tx sqlkit.OutboxTx, cursors []sqlkit.OutboxCursor) (string, error) {
	var system, oid, top string
	err := tx.Each("outbox_identity", func(scan func(...any) error) error { return scan(&system, &oid, &top) })
	if err != nil {
		return "", err
	}
	identity := "system " + system + " database " + oid
	now, _ := strconv.ParseUint(top, 10, 64)
	for _, c := range cursors {
		if w, err := parseWindow(c.Cursor.Window); err != nil || w.ahead(now) {
			return identity, fmt.Errorf("%w: the cursor of partition %d has seen transactions that this server has not: it is a restored or upgraded copy; nothing was published; "+
				"if this is the one to publish from now on, run idempo outbox adopt", outbox.ErrForeignDatabase, c.Part)
		}
	}
	return identity, nil
}

// wake is sqlkit.OutboxDB.Wake.
func (e *events) wake(tx sqlkit.OutboxTx) (void bool, err error) {
	look, err := e.look(tx, "")
	if err != nil {
		return false, err
	}
	if void = look.life == ""; void {
		if err := tx.Exec("outbox_wake", "alive", rand.Text()); err != nil {
			return false, err
		}
		if look, err = e.look(tx, ""); err != nil {
			return false, err
		}
	}
	e.read(look.life, look.last)
	return void, nil
}

// looked is where the outbox stands.
type looked struct {
	snapshot, life, lsn string
	last                int64
	epoch               *int64 // nil: no such group
}

func (e *events) look(tx sqlkit.OutboxTx, group string) (l looked, err error) {
	err = tx.Each("outbox_look", l.row(), "group", group)
	return l, err
}

func (l *looked) row() func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var life *string
		err := scan(&l.snapshot, &l.last, &life, &l.epoch, &l.lsn)
		if life != nil {
			l.life = *life
		}
		return err
	}
}

// lookAlone is look as a transaction by itself.
func (e *events) lookAlone(ctx context.Context, op, group string) (l looked, err error) {
	st := e.s.q["outbox_look"].with(nil, "group", group)
	st.Row = l.row()
	return l, e.run(ctx, op, st)
}

// read remembers a sequence value. It belongs to one life of the server: a crash may take it back.
func (e *events) read(life string, last int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if life != e.life {
		e.life, e.last, e.safe = life, 0, 0
	}
	e.last = max(e.last, last)
}

// passed remembers that a transaction has ended which got its number after the sequence value was read: who had drawn
// that value, or a lower one, by then has a lower number, and every snapshot from now on says whether it is still open.
func (e *events) passed(life string, last int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if life == e.life {
		e.safe = max(e.safe, last)
	}
}

// newest is the highest sequence value that was read, and the life of the server.
func (e *events) newest() (life string, last int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life, e.last
}

// seen is the sequence value that a window opened from now on may have for its low, and the life of the server.
func (e *events) seen() (life string, safe int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life, e.safe
}

// loaded is sqlkit.OutboxDB.Loaded: a place that is stored outlives a crash, and counts as one of this life.
func (e *events) loaded(c outbox.Cursor) outbox.Cursor {
	w, err := parseWindow(c.Window)
	if err != nil {
		return c // known refuses it
	}
	w.life, _ = e.seen()
	c.Window = w.text()
	return c
}

// newCursor is sqlkit.OutboxDB.Newest.
func (e *events) newCursor(ctx context.Context) (outbox.Cursor, error) {
	first, err := e.lookAlone(ctx, "hold", "")
	if err == nil {
		err = e.run(ctx, "hold", e.s.q["outbox_pass"].with(nil))
	}
	if err != nil {
		return outbox.Cursor{}, err
	}
	second, err := e.lookAlone(ctx, "hold", "")
	return outbox.Cursor{Window: window{older: second.snapshot, low: first.last}.stored()}, err
}

// advance is sqlkit.OutboxDB.Advance.
func (e *events) advance(tx sqlkit.OutboxTx, group, owner string, to []outbox.Place, now time.Time) (map[int]bool, error) {
	args, err := advance(group, owner, to, now)
	if err != nil {
		return nil, err
	}
	mine := map[int]bool{}
	return mine, tx.Each("outbox_advance", mineRow(mine), args...)
}

func mineRow(mine map[int]bool) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var part int64
		err := scan(&part)
		mine[int(part)] = true
		return err
	}
}

// advance are the arguments of outbox_advance. Windows are sent once each.
func advance(group, owner string, to []outbox.Place, now time.Time) ([]any, error) {
	type place struct {
		Part  int     `json:"part"`
		Fence int64   `json:"fence"`
		Win   *int    `json:"win,omitempty"`
		Seq   int64   `json:"seq"`
		Life  *string `json:"alive,omitempty"`
	}
	places := make([]place, 0, len(to))
	var wins []string
	known := map[string]int{}
	lives := map[string]string{}
	for _, one := range to {
		p := place{Part: one.Partition, Fence: one.Fence, Seq: one.Cursor.Seq}
		if text := one.Cursor.Window; text != "" {
			at, there := known[text]
			if !there {
				w, err := parseWindow(text)
				if err != nil {
					return nil, err
				}
				at = len(wins)
				wins, known[text], lives[text] = append(wins, w.stored()), at, w.life
			}
			p.Win, p.Life = &at, new(lives[text])
		}
		places = append(places, p)
	}
	a, err := json.Marshal(places)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(wins)
	if err != nil {
		return nil, err
	}
	var at any
	if !now.IsZero() {
		at = now.UnixMicro()
	}
	return []any{"group", group, "owner", owner, "places", string(a), "wins", string(b), "at", at}, nil
}

// Move implements outbox.Store: with nothing to set aside it is one statement.
func (e *events) Move(ctx context.Context, p outbox.MoveParams) (outbox.Moved, error) {
	if len(p.Asides) > 0 || len(p.To) == 0 {
		return e.Outbox.Move(ctx, p)
	}
	args, err := advance(p.Group, p.Owner, p.To, p.Now)
	if err != nil {
		return outbox.Moved{}, err
	}
	mine := map[int]bool{}
	st := e.s.q["outbox_advance"].with(nil, args...)
	st.Row = mineRow(mine)
	life, last := e.newest()
	if err := e.run(ctx, "move", st); err != nil {
		return outbox.Moved{}, err
	}
	if len(mine) > 0 { // else it got no number
		e.passed(life, last)
	}
	if len(mine) == len(p.To) {
		return outbox.Moved{}, nil
	}
	lost, err := e.Whose(ctx, p.Group, p.Owner, slices.DeleteFunc(slices.Clone(p.To), func(one outbox.Place) bool { return mine[one.Partition] }))
	return outbox.Moved{Lost: lost}, err
}

// audited is sqlkit.OutboxDB.Audited.
func (e *events) audited(tx sqlkit.OutboxTx, a sqlkit.OutboxAudit) error {
	return tx.Each("audit_add", func(func(...any) error) error { return nil }, "now", a.At.UnixMicro(), "actor", a.Actor, "role", a.Role, "channel", a.Channel,
		"action", a.Action, "outcome", cmp.Or(a.Outcome, "done"), "code", a.Code, "tenant_id", tenantOf(a), "operation", a.Operation, "idempotency_key", a.ID,
		"attempt", int64(0), "state_before", a.Before, "state_after", a.After, "reason", a.Reason, "evidence", a.Evidence)
}

func outboxWords() sqlkit.OutboxWords {
	return sqlkit.OutboxWords{Lock: "for update", List: func(column, argument string) string {
		return column + " = any(string_to_array(" + argument + ", ',')::int[])"
	}}
}

// tenantOf is the tenant that an audit row is about, as an argument.
func tenantOf(a sqlkit.OutboxAudit) any {
	if a.Tenant == "" {
		return nil
	}
	return a.Tenant
}
