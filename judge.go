package idempo

import (
	"bytes"
	"crypto/subtle"
	"slices"
	"time"
)

// rowFormat is the newest row format this release reads and writes.
const rowFormat = 1

// Judge decides an Acquire: what p gets from the stored record r (found false: there is none) at now, on the store's
// clock. write says that Acquired.Record is to be written in r's place: for a leased claim, an issued or enqueued key
// at once, for an atomic claim by Complete. A store calls it on a row it has locked, or repeats the row's attempt,
// state and token in the condition of its write. Judge does no I/O and shares nothing.
//
// Order: record_unreadable, not_issued, expired, mismatch, in doubt, in progress, replay, run.
func (p AcquireParams) Judge(r Record, found bool, now time.Time) (a Acquired, write bool, err error) {
	eff, live := r.Effective(now)
	switch {
	case found && !r.Readable():
		return Acquired{}, false, &Error{Op: "acquire", Code: "record_unreadable", KeyRef: r.Ref(), Hint: "the record was written by a newer release"}
	case !found || !live:
		if p.RequireIssued && p.Issue == 0 {
			return Acquired{}, false, &Error{Op: "acquire", Code: "not_issued", KeyRef: p.Key.Ref()}
		}
		return Acquired{Verdict: VerdictRun, Record: p.claim(Record{Attempt: r.Attempt}, now)}, true, nil
	case eff.State == StateIssued:
		if p.Issue > 0 {
			return Acquired{Verdict: VerdictRun, Record: eff}, false, nil
		}
		return Acquired{Verdict: VerdictRun, Record: p.claim(r, now)}, true, nil
	}
	if p.Foreign(r) {
		return p.judgeIdentity(eff)
	}
	same := eff.Recipe == p.Recipe && subtle.ConstantTimeCompare(eff.Hash, p.Hash) == 1
	if eff.State == StateExpired {
		if !same {
			eff.Result.Resource = Resource{}
		}
		return Acquired{Verdict: VerdictExpired, Record: eff}, false, nil
	}
	if !same {
		eff.Result, eff.Snapshot, eff.Note = Result{}, nil, ""
		return Acquired{Verdict: VerdictMismatch, Record: eff}, false, nil
	}
	return p.judgeSame(r, eff, now)
}

// Foreign reports whether r, found by one of p's digests, stands for another key: it was found by a business identity
// (p.Unique). A foreign record that is over does not count: a store removes it instead of building on it.
func (p AcquireParams) Foreign(r Record) bool {
	return len(p.Unique) > 0 && r.Key.ID != p.Key.ID && !slices.Contains(p.Aliases, r.Key.ID)
}

// judgeIdentity is Judge for a record of another key that holds one of p.Unique: it is shown as a pointer only.
func (p AcquireParams) judgeIdentity(eff Record) (Acquired, bool, error) {
	eff.Result, eff.Snapshot, eff.Note = Result{Resource: eff.Result.Resource}, nil, ""
	a := Acquired{Record: eff}
	switch eff.State {
	case StateCompleted, StateExpired:
		a.Verdict = VerdictReplay
	case StateInDoubt:
		a.Verdict = VerdictInDoubt
	default:
		a.Verdict, a.RetryAfter = VerdictInProgress, time.Second
	}
	return a, false, nil
}

// judgeSame is Judge for a record that stands for the same request.
func (p AcquireParams) judgeSame(r, eff Record, now time.Time) (Acquired, bool, error) {
	policy := stricter(r.OnCrash, p.OnCrash)
	take := func(lapsed bool) (Acquired, bool, error) {
		if p.Issue > 0 || !p.Due.IsZero() {
			return Acquired{Verdict: VerdictInProgress, Record: eff, RetryAfter: time.Second}, false, nil
		}
		rec := p.claim(r, now)
		if lapsed {
			rec.OnCrash = policy
		}
		return Acquired{Verdict: VerdictRun, Record: rec, Lapsed: lapsed}, true, nil
	}
	switch eff.State {
	case StateCompleted:
		return Acquired{Verdict: VerdictReplay, Record: eff}, false, nil
	case StateFailed:
		return take(false)
	case StateInDoubt:
		if policy == OnCrashHold {
			return Acquired{Verdict: VerdictInDoubt, Record: eff}, false, nil
		}
		if policy == OnCrashProbe && r.DueAt.After(now) {
			return Acquired{Verdict: VerdictInDoubt, Record: eff, RetryAfter: r.DueAt.Sub(now)}, false, nil
		}
		return take(true)
	}
	switch { // pending
	case !r.Lapsed(now) && r.Token.Equal(p.Token) && !p.Token.IsZero():
		// Whether the lost answer was a take-over is not in the row: any attempt but the first may be, so ask the probe.
		return Acquired{Verdict: VerdictRun, Record: eff, Lapsed: r.Attempt > 1}, false, nil
	case !r.Lapsed(now):
		return Acquired{Verdict: VerdictInProgress, Record: eff, RetryAfter: eff.RetryAfter(now)}, false, nil
	case r.StartedAt.IsZero():
		return take(false)
	case policy == OnCrashHold:
		eff.State = StateInDoubt
		return Acquired{Verdict: VerdictInDoubt, Record: eff}, false, nil
	}
	return take(true)
}

// RetryAfter is when to ask again for a record that is pending at now: half its age, at most 30 s and the rest of its
// lease, at least 1 s.
func (r Record) RetryAfter(now time.Time) time.Duration {
	return max(time.Second, min(now.Sub(r.ClaimedAt)/2, 30*time.Second, r.LeaseUntil.Sub(now)))
}

// claim returns the record that p makes of r (zero where there is none): issued, enqueued or claimed.
func (p AcquireParams) claim(r Record, now time.Time) Record {
	fresh := r.State == "" || r.State == StateIssued
	c := r.Clone()
	if r.State == "" {
		c = Record{Attempt: r.Attempt, CreatedAt: now}
		c.Key = p.Key
	}
	c.Key.Tenant, c.Key.Operation = p.Key.Tenant, p.Key.Operation
	c.Generation, c.Format, c.ChangedAt, c.Now = max(r.Generation, 1), rowFormat, now, now
	c.Guard, c.OnCrash, c.Surface = p.Guard, p.OnCrash, p.Surface
	c.Owner, c.Trace, c.Token = p.Owner, p.Trace, p.Token
	c.ExpiresAt, c.GoneAt, c.CompletedAt, c.DueAt, c.StartedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	c.Result, c.BodySize, c.BodySHA256, c.BodyKept = Result{}, 0, nil, false
	if p.Issue > 0 {
		c.State, c.ExpiresAt, c.Token = StateIssued, now.Add(p.Issue), Token{}
		c.IssuedUntil = c.ExpiresAt
		return c
	}
	if fresh {
		c.Hash, c.Recipe, c.Detail = bytes.Clone(p.Hash), p.Recipe, bytes.Clone(p.Detail)
	}
	if p.Snapshot != nil && (fresh || c.Snapshot == nil) {
		c.Snapshot, c.Sealed = bytes.Clone(p.Snapshot), ""
	}
	if c.DerivedKey == "" {
		c.DerivedKey = p.DerivedKey
	}
	c.State = StatePending
	if !p.Due.IsZero() {
		c.Token, c.ClaimedAt, c.LeaseUntil, c.DueAt = Token{}, now, now, p.Due
		return c
	}
	c.Attempt++
	c.ClaimedAt, c.LeaseUntil = now, now.Add(p.Lease)
	if !p.StartMark {
		c.StartedAt = now
	}
	return c
}

// Judge decides a Renew of the stored record r at now. On nil error the returned record is to be written.
func (p RenewParams) Judge(r Record, found bool, now time.Time) (Record, error) {
	if !found || r.State != StatePending || !r.Token.Equal(p.Token) || p.Token.IsZero() || r.Lapsed(now) {
		return Record{}, lost("renew", p.Key, r, found)
	}
	c := r.Clone()
	c.ChangedAt, c.Now = now, now
	if until := now.Add(p.Lease); until.After(c.LeaseUntil) {
		c.LeaseUntil = until
	}
	if p.Start && c.StartedAt.IsZero() {
		c.StartedAt = now
	}
	if !p.Refer.IsZero() && !slices.Contains(c.References, p.Refer) { // the same call sent again adds nothing
		c.References = append(c.References, p.Refer)
	}
	if p.DerivedKey != "" {
		c.DerivedKey = p.DerivedKey
	}
	return c, nil
}

// Judge decides a Complete of the stored record r at now. write says that the returned record is to be written; false
// with nil error: the same result is there already. The record's Result is p's own: who keeps it in memory copies it.
func (p CompleteParams) Judge(r Record, found bool, now time.Time) (rec Record, write bool, err error) {
	eff, live := r.Effective(now)
	own := found && live && r.Token.Equal(p.Token) && !p.Token.IsZero()
	switch {
	case own && r.State == StateCompleted && eff.State == StateCompleted:
		if eff.Result.Equal(p.Result) {
			return eff, false, nil
		}
		return Record{}, false, wrong("complete", eff)
	case p.Won.Guard == GuardAtomic:
		won := p.Won
		won.RequireIssued = false // the claim consumed it
		a, _, err := won.Judge(r, found, now)
		if err != nil || a.Verdict != VerdictRun || a.Record.Attempt != p.Attempt {
			return Record{}, false, lost("complete", p.Key, r, found)
		}
		return p.completed(a.Record, now), true, nil
	case own && (r.State == StatePending || r.State == StateInDoubt):
		return p.completed(r.Clone(), now), true, nil
	case own && r.State == StateFailed:
		return Record{}, false, wrong("complete", eff)
	}
	return Record{}, false, lost("complete", p.Key, r, found)
}

func (p CompleteParams) completed(c Record, now time.Time) Record {
	c.State, c.Token, c.CompletedAt, c.ChangedAt, c.Now = StateCompleted, p.Token, now, now, now
	c.Result, c.BodySize, c.BodySHA256, c.BodyKept, c.Sealed = p.Result, p.Size, bytes.Clone(p.SHA256), p.Kept, p.Sealed
	c.References = append(c.References, p.References...)
	c.DueAt, c.Note = time.Time{}, ""
	c.ExpiresAt = now.Add(p.Retention)
	if p.Tombstone != Forever {
		c.GoneAt = c.ExpiresAt.Add(p.Tombstone)
	}
	return c
}

// Judge decides a Release of the stored record r at now. write says that the returned record is to be written; one
// whose State is "" says that the row, and its alias rows, are to be removed.
func (p ReleaseParams) Judge(r Record, found bool, now time.Time) (rec Record, write bool, err error) {
	eff, live := r.Effective(now)
	if !found || !live || !r.Token.Equal(p.Token) || p.Token.IsZero() {
		return Record{}, false, lost("release", p.Key, r, found)
	}
	switch {
	case r.State == StateCompleted && eff.State == StateCompleted:
		return Record{}, false, wrong("release", eff)
	case r.State == StateFailed, r.State == StateInDoubt && p.To == StateInDoubt:
		return eff, false, nil
	case r.State == StateInDoubt && p.To != StateFailed, r.State != StatePending && r.State != StateInDoubt:
		return Record{}, false, lost("release", p.Key, r, found)
	}
	c := r.Clone()
	c.ChangedAt, c.Now, c.Note = now, now, p.Note
	switch p.To {
	case StateFailed:
		c.State, c.ExpiresAt, c.DueAt = StateFailed, now.Add(p.Retention), time.Time{}
	case StateInDoubt:
		c.State, c.DueAt = StateInDoubt, time.Time{}
		if c.StartedAt.IsZero() {
			c.StartedAt = now
		}
		if p.Due > 0 {
			c.DueAt = now.Add(p.Due)
		}
	default:
		if r.IssuedUntil.IsZero() {
			return Record{Key: r.Key}, true, nil
		}
		c.State, c.ExpiresAt, c.Token = StateIssued, r.IssuedUntil, Token{}
		c.Hash, c.Recipe, c.Detail, c.Snapshot = nil, "", nil, nil
	}
	return c, true, nil
}

func lost(op string, k Key, r Record, found bool) error {
	e := &Error{Op: op, Code: "lease_lost", KeyRef: k.Ref()}
	if found {
		e.Attempt = r.Attempt
	}
	return e
}

func wrong(op string, r Record) error {
	return &Error{Op: op, Code: "wrong_state", KeyRef: r.Ref(), Attempt: r.Attempt, Hint: "the record is " + string(r.State)}
}
