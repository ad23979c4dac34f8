package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/outbox"
)

// stale is what is added to the epoch of a group where places in memory are void: the relay asks what it holds.
const stale = 1 << 40

// A cursor goes on through what is not for its group, or nothing new, when it is so many rows behind, or after so long.
const (
	idleRows = 500
	idleTime = 5 * time.Second
)

// batch are partitions that read on at the same place.
type batch struct {
	w     window
	seq   int64
	parts []int
}

// batches sorts places.
func batches(from []outbox.Place) (all []*batch, err error) {
	known := map[outbox.Cursor]*batch{}
	for _, one := range from {
		b := known[one.Cursor]
		if b == nil {
			w, err := parseWindow(one.Cursor.Window)
			if err != nil {
				return nil, err
			}
			b = &batch{w: w, seq: one.Cursor.Seq}
			known[one.Cursor] = b
			all = append(all, b)
		}
		b.parts = append(b.parts, one.Partition)
	}
	return all, nil
}

// reading is one call of Read.
type reading struct {
	e      *events
	p      outbox.ReadParams
	page   outbox.Page
	topics any
	rows   int64
	bytes  int64
	void   bool // a place is of before a crash
}

// Read implements outbox.Store. Windows that are open are read to their end before new ones are opened, all at once, so
// that partitions that came together read at one place.
func (e *events) Read(ctx context.Context, p outbox.ReadParams) (outbox.Page, error) {
	all, err := batches(p.From)
	if err != nil {
		return outbox.Page{}, e.failed("read", err)
	}
	r := &reading{e: e, p: p, topics: patterns(p.Topics), rows: int64(max(p.MaxRows, 1)), bytes: int64(max(p.MaxBytes, 1))}
	if len(all) == 0 || p.PublishAfter == outbox.AfterStandby {
		more, err := r.prepare(ctx, all)
		if err != nil || !more {
			return r.page, err
		}
	}
	open := slices.DeleteFunc(slices.Clone(all), func(b *batch) bool { return b.w.newer == "" })
	if len(open) == 0 {
		open = all
	} else {
		r.page.More = true // what came since the window was opened is not looked at in this call
	}
	for i, b := range open {
		if i > 0 && open[0].w.newer != "" && b.w.newer == "" {
			b.open(open[0].w)
		}
		if r.rows <= 0 || r.bytes <= 0 {
			r.page.More = true
			if b.w.newer != "" { // opened with the others
				r.next(b.parts, b.w.at(b.seq))
			}
			continue
		}
		if err := r.read(ctx, b); err != nil {
			return outbox.Page{}, err
		}
	}
	if r.void {
		return outbox.Page{Epoch: r.page.Epoch + stale}, nil
	}
	return r.page, nil
}

// patterns are globs as LIKE takes them; nil: all topics.
func patterns(globs []string) any {
	if len(globs) == 0 || slices.Contains(globs, "*") {
		return nil
	}
	return strings.NewReplacer("_", `\_`, "*", "%").Replace(strings.Join(globs, ","))
}

// open begins a window up to the snapshot of another.
func (b *batch) open(like window) {
	b.w.newer, b.w.newLow, b.w.high, b.w.lsn = like.newer, max(like.newLow, b.w.low), like.high, like.lsn
	b.w.pass, b.seq = 1, b.w.low
	if late(b.w.older) {
		b.w.pass, b.seq = 0, 0
	}
}

// prepare reads the epoch alone, or waits for a standby: windows are opened without reading, and read when a standby has
// what the server had written by then.
func (r *reading) prepare(ctx context.Context, all []*batch) (more bool, err error) {
	_, low := r.e.seen()
	l, err := r.e.lookAlone(ctx, "read", r.p.Group)
	if err != nil {
		return false, err
	}
	if l.epoch == nil {
		return false, fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, r.p.Group)
	}
	r.page.Epoch = *l.epoch
	waits := ""
	for _, b := range all {
		if b.w.life != l.life {
			r.page.Epoch += stale
			return false, nil
		}
		waits = max(waits, b.w.lsn)
	}
	switch {
	case len(all) == 0:
		return false, nil
	case waits != "":
		var yes bool
		for _, b := range all {
			if b.w.lsn == "" {
				continue
			}
			st := r.e.s.q["outbox_confirmed"].with(nil, "lsn", b.w.lsn)
			st.Row = func(scan func(...any) error) error { return scan(&yes) }
			if err := r.e.run(ctx, "read", st); err != nil || !yes {
				return false, err
			}
		}
		return true, nil
	case !slices.ContainsFunc(all, func(b *batch) bool { return l.last > b.w.low || late(b.w.older) }):
		return false, nil
	}
	for _, b := range all {
		if b.w.newer == "" {
			b.open(window{newer: l.snapshot, newLow: low, high: l.last, lsn: l.lsn})
			r.next(b.parts, b.w.at(b.seq))
		}
	}
	r.e.read(l.life, l.last)
	r.page.More = true
	return false, nil
}

// next says that partitions go on at a cursor.
func (r *reading) next(parts []int, c outbox.Cursor) {
	for _, part := range parts {
		r.page.Next = append(r.page.Next, outbox.Place{Partition: part, Cursor: c})
	}
}

// found is what a statement of outbox_read says beside its rows.
type found struct {
	newer, life string
	last        int64
	epoch       *int64
	rows        int
	full        bool // there was a row that did not fit
	pass        int64
	seq         int64 // of the last row that did
}

// read reads a page of a batch.
func (r *reading) read(ctx context.Context, b *batch) error {
	w := b.w
	if w.newer == "" {
		w.pass, b.seq = 1, w.low
		if late(w.older) {
			w.pass, b.seq = 0, 0
		}
	}
	life, seen := r.e.seen()
	parts := make([]string, len(b.parts))
	for i, part := range b.parts {
		parts[i] = strconv.Itoa(part)
	}
	args := []any{"group", r.p.Group, "older", w.older, "low", w.low, "pass", w.pass, "after", b.seq, "parts", strings.Join(parts, ","),
		"topics", r.topics, "rows", r.rows, "bytes", r.bytes}
	if w.newer != "" {
		args = append(args, "newer", w.newer, "high", w.high)
	}
	f := found{pass: w.pass, seq: b.seq}
	first := len(r.page.Rows)
	st := r.e.s.q["outbox_read"].with(nil, args...)
	st.Row = f.row(&r.page)
	if err := r.e.run(ctx, "read", st); err != nil {
		return err
	}
	if f.epoch == nil {
		return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, r.p.Group)
	}
	r.page.Epoch = *f.epoch
	if w.life != f.life {
		r.void = true
		return nil
	}
	if w.newer == "" {
		w.newer, w.high, w.newLow = f.newer, f.last, w.low
		if life == f.life {
			w.newLow = max(w.low, seen)
		}
		b.w = w
	}
	r.e.read(f.life, f.last)
	r.cursors(w, r.page.Rows[first:])
	for _, row := range r.page.Rows[first:] {
		r.bytes -= int64(len(row.Payload))
	}
	r.rows -= int64(f.rows)
	switch {
	case f.full || r.rows <= 0:
		w.pass = f.pass
		r.page.More = true
		r.next(b.parts, w.at(f.seq))
	case f.rows > 0 || b.w.newer != "" && r.worth(b, w):
		r.next(b.parts, w.closed().at(0))
	}
	return nil
}

// worth reports whether a cursor should go on although there was nothing for it.
func (r *reading) worth(b *batch, w window) bool {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if b.seq > w.low || w.high-w.low > idleRows || time.Since(r.e.still[r.p.Group]) > idleTime {
		r.e.still[r.p.Group] = time.Now()
		return true
	}
	return false
}

// cursors says where each row stands. Those of one pass share their window's text.
func (r *reading) cursors(w window, rows []outbox.Row) {
	w.pass = 0
	texts := [2]string{w.text()}
	w.pass = 1
	texts[1] = w.text()
	for i := range rows {
		rows[i].Cursor = outbox.Cursor{Window: texts[rows[i].Cursor.Seq], Seq: rows[i].Seq}
	}
}

// row reads one row of the statement. A row's pass stands in its cursor until cursors makes one of it.
func (f *found) row(page *outbox.Page) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var row sqlkit.EventRow
		var pass *int64
		var fits, blocked *bool
		var newer, life *string
		var epoch *int64
		if err := scan(append(row.Dest(), &pass, &fits, &blocked, &newer, &f.last, &life, &epoch)...); err != nil {
			return err
		}
		if f.epoch = epoch; life != nil {
			f.life = *life
		}
		if newer != nil {
			f.newer = *newer
		}
		one, there, err := row.Row()
		if err != nil || !there {
			return err
		}
		if fits == nil || !*fits {
			f.full = true
			return nil
		}
		f.rows++
		f.pass, f.seq = *pass, one.Seq
		one.Blocked, one.Cursor.Seq = *blocked, *pass
		page.Rows = append(page.Rows, one)
		return nil
	}
}
