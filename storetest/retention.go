package storetest

import (
	"time"

	"github.com/idempo/idempo"
)

func retentionCases() []testCase {
	return []testCase{
		{name: "[stores/T4] no sweeper, ever: replay before expires_at, expired from it on, run from gone_at on", run: boundaries},
		{name: "[stores/T2] counted from completion, fixed in the row: a replay does not extend it, nor a later call", run: retentionFixed},
		{name: "[stores/T3] a tombstone keeps the fact and the pointer, nothing of the payload", run: tombstoneContent},
		{name: "[stores/T3] a tombstone for ever", run: tombstoneForever},
		{name: "[stores/T6] pending and in doubt never expire", run: neverExpires},
		{name: "[stores/T6] a failure is gone after its retention, without a tombstone", run: failureExpires},
		{name: "[stores/T6] an issued and unused key is gone after its time", run: issuedExpires},
		{name: "expired with another fingerprint shows no resource pointer", run: expiredForeign},
	}
}

func boundaries(k *K) {
	p := k.claim(k.key())
	k.completed(p)
	end, gone := k.t0.Add(retention), k.t0.Add(retention+tombstone)
	for _, c := range []struct {
		at time.Time
		v  idempo.Verdict
		s  idempo.State
	}{
		{k.t0, idempo.VerdictReplay, idempo.StateCompleted}, {end.Add(-k.tick), idempo.VerdictReplay, idempo.StateCompleted},
		{end, idempo.VerdictExpired, idempo.StateExpired}, {end.Add(k.tick), idempo.VerdictExpired, idempo.StateExpired},
		{gone.Add(-k.tick), idempo.VerdictExpired, idempo.StateExpired}, {end.Add(-k.tick), idempo.VerdictReplay, idempo.StateCompleted},
	} {
		k.state(p.Key, c.at, c.s)
		k.verdict(k.again(p, c.at), c.v)
	}
	k.state(p.Key, gone, "")
	next := k.again(p, gone)
	next.Hash = digest("another request")
	r := k.won(next)
	if string(r.Hash) != string(next.Hash) || !r.CreatedAt.Equal(gone) || r.Result.Status != 0 || !r.Result.Resource.IsZero() {
		k.Errorf("the new record remembers the old one: %+v", r)
	}
}

func retentionFixed(k *K) {
	p := k.claim(k.key())
	k.won(p)
	done := k.t0.Add(10 * time.Second)
	c := k.done(p, 1, done)
	c.Retention, c.Tombstone = time.Hour, 2*time.Hour
	_, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	for range 3 {
		k.verdict(k.again(p, done.Add(59*time.Minute)), idempo.VerdictReplay)
	}
	c.Retention, c.Now = 100*time.Hour, done.Add(59*time.Minute)
	_, err = k.Store.Complete(k.ctx, c) // the same result again, with other settings
	k.ok(err)
	k.state(p.Key, done.Add(time.Hour), idempo.StateExpired)
	k.state(p.Key, done.Add(3*time.Hour-k.tick), idempo.StateExpired)
	k.state(p.Key, done.Add(3*time.Hour), "")
}

// checkTombstone wants r to be what T3 leaves of want, the completed record.
func (k *K) checkTombstone(r, want idempo.Record) {
	k.Helper()
	want.State = idempo.StateExpired
	want.Result.Header, want.Result.Body = nil, nil
	want.Detail, want.Snapshot, want.Note, want.Trace, want.BodyKept = nil, nil, "", "", false
	r.ChangedAt, want.ChangedAt = time.Time{}, time.Time{} // a sweep may have written it
	k.same("the tombstone", r, want)
}

func tombstoneContent(k *K) {
	p := k.claim(k.key())
	want := k.completed(p)
	at := k.t0.Add(retention)
	k.checkTombstone(k.look(p.Key, at), want)
	k.checkTombstone(k.verdict(k.again(p, at), idempo.VerdictExpired).Record, want)
}

func tombstoneForever(k *K) {
	p := k.claim(k.key())
	c := k.done(p, k.won(p).Attempt, k.t0)
	c.Tombstone = idempo.Forever
	r, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	if !r.GoneAt.IsZero() {
		k.Errorf("gone at %s", r.GoneAt)
	}
	k.verdict(k.again(p, k.t0.AddDate(200, 0, 0)), idempo.VerdictExpired)
}

func neverExpires(k *K) {
	p, q := k.claim(k.key()), k.claim(k.key())
	p.StartMark = true
	k.won(p)
	k.released(q, idempo.StateInDoubt)
	for _, years := range []int{1, 200} {
		k.state(p.Key, k.t0.AddDate(years, 0, 0), idempo.StatePending)
		k.state(q.Key, k.t0.AddDate(years, 0, 0), idempo.StateInDoubt)
		k.verdict(k.again(q, k.t0.AddDate(years, 0, 0)), idempo.VerdictInDoubt)
	}
}

func failureExpires(k *K) {
	p := k.claim(k.key())
	k.released(p, idempo.StateFailed)
	other := k.again(p, k.t0.Add(retention-k.tick))
	other.Hash = digest("another request")
	k.verdict(other, idempo.VerdictMismatch)
	other.Now = k.t0.Add(retention)
	if r := k.won(other); string(r.Hash) != string(other.Hash) {
		k.Error("the old failure binds still")
	}
}

func issuedExpires(k *K) {
	key := k.issued()
	k.state(key, k.t0.Add(time.Hour-k.tick), idempo.StateIssued)
	k.state(key, k.t0.Add(time.Hour), "")
}

func expiredForeign(k *K) {
	p := k.claim(k.key())
	k.completed(p)
	other := k.again(p, k.t0.Add(retention))
	if r := k.verdict(other, idempo.VerdictExpired).Record; r.Result.Resource != answer().Resource || r.Result.Status != 201 {
		k.Errorf("the owner's late retry is not told what it made: %+v", r.Result)
	}
	other.Hash = digest("another request")
	if r := k.verdict(other, idempo.VerdictExpired).Record; !r.Result.Resource.IsZero() {
		k.Errorf("shows %v", r.Result.Resource)
	}
}
