package storecheck

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

const week = 7 * 24 * time.Hour

// days fills the log with events of days that are over, and returns the clock of the day after.
func (o *openOutbox) days(n, each int) time.Time {
	o.t.Helper()
	log, _ := o.p.Outbox()
	first := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -n)
	for d := range n {
		must(o.t, o.p.InTx(o.t.Context(), func(ctx context.Context) error {
			var rows []outbox.Row
			for i := range each {
				e := outbox.Event{ID: outbox.IDFor("days", fmt.Sprint(d, "/", i)), Source: "/s", Tenant: "default", Topic: "t", Key: fmt.Sprint("k", i%3), Type: "T", Payload: fmt.Appendf(nil, "%d/%d", d, i)}
				rows = append(rows, outbox.Row{Event: e, Partition: outbox.PartitionOf(e.Tenant, e.Key, e.ID)})
			}
			_, err := log.Append(ctx, outbox.AppendParams{Rows: rows, Lock: true, Now: first.AddDate(0, 0, d).Add(time.Hour)})
			return err
		}))
	}
	return first.AddDate(0, 0, n)
}

func (o *openOutbox) keep(now time.Time, retention time.Duration) outbox.Kept {
	o.t.Helper()
	log, _ := o.p.Outbox()
	kept, err := log.(outbox.Keeper).Keep(o.t.Context(), outbox.KeepParams{Retention: retention, Budget: time.Minute, Now: now})
	must(o.t, err)
	return kept
}

func (o *openOutbox) rows() string { return o.one(`select count(*)::text from idempo.outbox`) }

func TestPostgresOutboxKeep(t *testing.T) {
	t.Parallel()
	t.Run("whole slots go, the oldest first, and the young stay", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		now := o.days(9, 5)
		if kept := o.keep(now, 5*24*time.Hour); kept.Rows != 0 || kept.Holder.Kind != "group" || kept.Holder.Text != "group main" || kept.Holder.Age < 5*24*time.Hour {
			t.Errorf("before anything is published: %+v", kept)
		}
		r.all(100)
		r.store()
		if kept := o.keep(now, 5*24*time.Hour); kept.Rows != 20 || kept.Slots != 4 || kept.Holder.Kind != "" || o.rows() != "25" {
			t.Errorf("kept %+v, %s rows are left", kept, o.rows())
		}
		if kept := o.keep(now, 5*24*time.Hour); kept.Rows != 0 || kept.Slots != 0 {
			t.Errorf("again: %+v", kept)
		}
		o.append("k", "young")
		wantBodies(t, "after it", r.all(100), "young")
	})
	t.Run("a transaction that is open in the slot is not waited for, and its event is not lost", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		now := o.days(2, 5)
		r.all(100)
		r.store()
		late := o.open(`insert into idempo.outbox (seq, xid, slot, partition, id, source, tenant_id, topic, type, payload, appended_at, recorded_at)
			select nextval('idempo.outbox_seq'), pg_current_xact_id(), slot, 5, gen_random_uuid(), '/s', 'default', 't', 'T', 'late', appended_at, recorded_at from idempo.outbox order by seq limit 1`)
		free := make(chan error, 1)
		go func() { free <- appendOne(context.Background(), o.box, "k", "beside") }()
		if kept := o.keep(now, 0); kept.Holder.Kind != "lock" || kept.Rows != 0 {
			t.Errorf("beside an open transaction: %+v", kept)
		}
		must(t, <-free)
		must(t, late.Commit())
		if kept := o.keep(now, 0); kept.Rows != 5 || kept.Holder.Kind != "group" {
			t.Errorf("its event is not published yet: %+v", kept)
		}
		wantBodies(t, "what was open", r.all(100), "late", "beside")
		r.store()
		if kept := o.keep(now, 0); kept.Rows != 6 {
			t.Errorf("when all is published: %+v", kept)
		}
	})
	t.Run("a long reader holds the slot and nothing else", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		now := o.days(3, 5)
		r.all(100)
		r.store()
		reader := o.open(`set transaction isolation level repeatable read`, `select count(*) from idempo.outbox`)
		if kept := o.keep(now, 0); kept.Rows != 0 || kept.Holder.Kind != "lock" {
			t.Errorf("behind a reader: %+v", kept)
		}
		o.append("k", "beside")
		wantBodies(t, "beside it", r.all(100), "beside")
		must(t, reader.Commit())
		if kept := o.keep(now, 0); kept.Rows != 15 {
			t.Errorf("afterwards: %+v", kept)
		}
	})
	t.Run("topics that no group takes stay until somebody discards them", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		log, desk := o.p.Outbox()
		now := o.days(2, 5)
		h, err := log.Hold(t.Context(), outbox.HoldParams{Group: "main", Topics: []string{"orders.*"}, Owner: "one", Lease: time.Hour, Want: 64})
		must(t, err)
		r := &logReader{t: t, s: log, group: "main", owner: "one", at: map[int]outbox.Place{}}
		for _, l := range h.Leases {
			r.at[l.Partition] = outbox.Place{Partition: l.Partition, Fence: l.Fence, Cursor: l.Cursor}
		}
		r.all(100)
		r.store()
		if kept := o.keep(now, 0); kept.Rows != 0 || kept.Holder.Kind != "topic" || !strings.Contains(kept.Holder.Text, "topic t is matched by no group") {
			t.Errorf("a stray topic: %+v", kept)
		}
		status, err := desk.Status(t.Context(), outbox.StatusParams{})
		if err != nil || len(status.Unmatched) != 1 || status.Unmatched[0].Topic != "t" || status.Unmatched[0].Bytes == 0 {
			t.Errorf("status %+v, %v", status.Unmatched, err)
		}
		_, err = desk.SetGroup(t.Context(), outbox.GroupParams{Group: "never", Action: outbox.GroupCreate, From: outbox.FromBeginning, Topics: []string{"t"}, Audit: reason})
		must(t, err)
		if kept := o.keep(now, 0); kept.Rows != 0 || kept.Holder.Text != "group never" {
			t.Errorf("a group that never runs: %+v", kept)
		}
		_, err = desk.SetGroup(t.Context(), outbox.GroupParams{Group: "never", Action: outbox.GroupRemove, Audit: reason})
		must(t, err)
		_, err = desk.Change(t.Context(), outbox.ChangeParams{Group: "main", Action: outbox.ActionDiscard, Topics: []string{"t"}, Audit: reason})
		must(t, err)
		if kept := o.keep(now, 0); kept.Rows != 10 {
			t.Errorf("discarded: %+v", kept)
		}
	})
	t.Run("a retention longer than the ring makes its slots longer", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		o.keep(time.Time{}, 60*24*time.Hour)
		if span := o.one(`select span_days::text from idempo.outbox_state`); span != "7" {
			t.Errorf("a slot has %s days", span)
		}
		o.keep(time.Time{}, week)
		if span := o.one(`select span_days::text from idempo.outbox_state`); span != "7" {
			t.Errorf("a slot has %s days", span)
		}
	})
	t.Run("an external group waits for its replication slot", func(t *testing.T) {
		t.Parallel()
		s := pgserver.Start(t, "wal_level=logical")
		p := openSQL(t, "pgx", s.DSN(), migrated(t, s.DSN(), postgres.Options{}))
		f := &functions{t: t, db: openDB(t, "pgx", s.DSN()), o: p.o}
		o := &openOutbox{f, p, newBox(t, p.Store)}
		_, desk := p.Outbox()
		_, err := desk.SetGroup(t.Context(), outbox.GroupParams{Group: "cdc", Action: outbox.GroupCreate, From: outbox.FromBeginning, Topics: []string{"*"}, External: true, Slot: "debezium", Audit: reason})
		must(t, err)
		if err := holdOf(t.Context(), p.Store, "cdc"); err == nil || !strings.Contains(err.Error(), "external") {
			t.Errorf("a relay of it: %v", err)
		}
		now := o.days(2, 5)
		if kept := o.keep(now, 0); kept.Rows != 0 || kept.Holder.Kind != "slot" || !strings.Contains(kept.Holder.Text, "debezium is not there") {
			t.Errorf("without the slot: %+v", kept)
		}
		f.one(`select pg_create_logical_replication_slot('debezium', 'test_decoding')::text`)
		o.append("k", "behind it")
		now = now.AddDate(0, 0, 3)
		if kept := o.keep(now, 0); kept.Holder.Kind != "slot" && kept.Rows == 0 {
			t.Errorf("a slot that is behind: %+v", kept)
		}
		f.one(`select count(*)::text from pg_logical_slot_get_changes('debezium', null, null)`)
		f.one(`select pg_replication_slot_advance('debezium', pg_current_wal_lsn())::text`)
		o.keep(now, 0)
		if o.rows() != "0" {
			t.Errorf("%s rows are left when the slot has confirmed all", o.rows())
		}
	})
}
