package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// A situation is a row of the transition table: how a key gets there, and when it is looked at.
type situation struct {
	name    string
	state   idempo.State   // what it counts as at that time
	onCrash idempo.OnCrash // of the record
	lapsed  bool           // a pending record whose lease is over
	started bool
	waits   bool  // a doubt whose next probe is not due
	attempt int64 // of the record
	gone    bool  // counts as absent, but was there once
	// build makes it and returns the params of the claim that owns it, or would, and the time to look.
	build func(k *K, p idempo.AcquireParams) time.Time
}

func claimed(k *K, p idempo.AcquireParams) time.Time { k.won(p); return k.t0.Add(time.Second) }

func lapsed(k *K, p idempo.AcquireParams) time.Time { k.won(p); return k.t0.Add(lease) }

// situations returns the rows of the table, written down by hand.
func situations() []situation {
	all := []situation{
		{name: "absent", build: func(k *K, _ idempo.AcquireParams) time.Time { return k.t0 }},
		{name: "issued", state: idempo.StateIssued, build: func(k *K, p idempo.AcquireParams) time.Time {
			p.Issue = time.Hour
			k.won(p)
			return k.t0.Add(time.Hour - k.tick)
		}},
		{name: "issued and over", gone: true, build: func(k *K, p idempo.AcquireParams) time.Time {
			p.Issue = time.Hour
			k.won(p)
			return k.t0.Add(time.Hour)
		}},
		{name: "failed", state: idempo.StateFailed, attempt: 1, build: func(k *K, p idempo.AcquireParams) time.Time {
			k.released(p, idempo.StateFailed)
			return k.t0.Add(retention - k.tick)
		}},
		{name: "failed and over", gone: true, attempt: 1, build: func(k *K, p idempo.AcquireParams) time.Time {
			k.released(p, idempo.StateFailed)
			return k.t0.Add(retention)
		}},
		{name: "completed", state: idempo.StateCompleted, attempt: 1, build: func(k *K, p idempo.AcquireParams) time.Time {
			k.completed(p)
			return k.t0.Add(retention - k.tick)
		}},
		{name: "expired", state: idempo.StateExpired, attempt: 1, build: func(k *K, p idempo.AcquireParams) time.Time {
			k.completed(p)
			return k.t0.Add(retention)
		}},
		{name: "gone", gone: true, attempt: 1, build: func(k *K, p idempo.AcquireParams) time.Time {
			k.completed(p)
			return k.t0.Add(retention + tombstone)
		}},
	}
	for _, c := range []idempo.OnCrash{idempo.OnCrashHold, idempo.OnCrashProbe, idempo.OnCrashRerun} {
		overdue := idempo.StatePending
		if c == idempo.OnCrashHold {
			overdue = idempo.StateInDoubt
		}
		all = append(all,
			situation{name: "pending alive, " + string(c), state: idempo.StatePending, onCrash: c, started: true, attempt: 1, build: claimed},
			situation{name: "pending lapsed started, " + string(c), state: overdue, onCrash: c, started: true, lapsed: true, attempt: 1, build: lapsed},
			situation{name: "in doubt, " + string(c), state: idempo.StateInDoubt, onCrash: c, started: true, attempt: 1,
				build: func(k *K, p idempo.AcquireParams) time.Time {
					k.released(p, idempo.StateInDoubt)
					return k.t0.Add(1000 * time.Hour)
				}},
			situation{name: "in doubt, probe not due, " + string(c), state: idempo.StateInDoubt, onCrash: c, started: true, attempt: 1, waits: true,
				build: func(k *K, p idempo.AcquireParams) time.Time {
					k.won(p)
					r := k.release(p, idempo.StateInDoubt, k.t0)
					r.Due = 5 * time.Second
					_, err := k.Store.Release(k.ctx, r)
					k.ok(err)
					return k.t0.Add(5*time.Second - k.tick)
				}},
		)
	}
	return append(all,
		situation{name: "pending alive, not started", state: idempo.StatePending, onCrash: idempo.OnCrashHold, attempt: 1,
			build: func(k *K, p idempo.AcquireParams) time.Time { p.StartMark = true; return claimed(k, p) }},
		situation{name: "pending lapsed, not started", state: idempo.StatePending, onCrash: idempo.OnCrashHold, lapsed: true, attempt: 1,
			build: func(k *K, p idempo.AcquireParams) time.Time { p.StartMark = true; return lapsed(k, p) }})
}

// begin builds s for a fresh key and returns its claim, the time, and the record as it is then.
func (s situation) begin(k *K) (p idempo.AcquireParams, at time.Time, before idempo.Record) {
	k.Helper()
	p = k.claim(k.key())
	if s.onCrash != "" {
		p.OnCrash = s.onCrash
	}
	at = s.build(k, p)
	return p, at, k.state(p.Key, at, s.state)
}

// cells returns a case for each situation and kind of call; in it every token and fingerprint.
func cells() (all []testCase) {
	for _, s := range situations() {
		cell := func(call string, run func(k *K)) {
			all = append(all, testCase{name: "transition: " + s.name + " · " + call, run: run})
		}
		cell("Acquire", s.acquireCell)
		cell("Issue", s.issueCell)
		cell("Renew", s.renewCell)
		cell("Complete", s.completeCell)
		cell("Release", s.releaseCell)
		cell("Lookup", s.lookupCell)
	}
	return all
}

// An outcome is what the table says of one Acquire.
type outcome struct {
	verdict idempo.Verdict
	lapsed  bool
	waits   bool // RetryAfter is set
}

// wantAcquire is the table's column Acquire, by hand: who calls with which policy, whose token, which fingerprint.
func (s situation) wantAcquire(caller idempo.OnCrash, own, equal bool) outcome {
	if s.state == "" || s.state == idempo.StateIssued {
		return outcome{verdict: idempo.VerdictRun}
	}
	if s.state == idempo.StateExpired {
		return outcome{verdict: idempo.VerdictExpired}
	}
	if !equal {
		return outcome{verdict: idempo.VerdictMismatch}
	}
	hold := s.onCrash == idempo.OnCrashHold || caller == idempo.OnCrashHold
	probe := !hold && (s.onCrash == idempo.OnCrashProbe || caller == idempo.OnCrashProbe)
	switch {
	case s.state == idempo.StateCompleted:
		return outcome{verdict: idempo.VerdictReplay}
	case s.state == idempo.StateFailed:
		return outcome{verdict: idempo.VerdictRun}
	case s.state == idempo.StatePending && !s.lapsed && own:
		return outcome{verdict: idempo.VerdictRun}
	case s.state == idempo.StatePending && !s.lapsed:
		return outcome{verdict: idempo.VerdictInProgress, waits: true}
	case s.state == idempo.StatePending && !s.started:
		return outcome{verdict: idempo.VerdictRun}
	case hold:
		return outcome{verdict: idempo.VerdictInDoubt}
	case probe && s.waits:
		return outcome{verdict: idempo.VerdictInDoubt, waits: true}
	}
	return outcome{verdict: idempo.VerdictRun, lapsed: true}
}

func (s situation) acquireCell(k *K) {
	policies := []idempo.OnCrash{idempo.OnCrashHold}
	if s.onCrash != "" {
		policies = []idempo.OnCrash{idempo.OnCrashHold, idempo.OnCrashProbe, idempo.OnCrashRerun}
	}
	for _, caller := range policies {
		for _, whose := range []string{"own", "foreign", "no"} {
			for _, equal := range []bool{true, false} {
				want := s.wantAcquire(caller, whose == "own", equal)
				if whose == "no" && want.verdict == idempo.VerdictRun {
					continue // a claim without a token is nobody's: the engine never sends one
				}
				p, at, before := s.begin(k)
				p.Now, p.OnCrash = at, caller
				switch whose {
				case "foreign":
					p.Token = k.token()
				case "no":
					p.Token = idempo.Token{}
				}
				if !equal {
					p.Hash = digest("another request")
				}
				a, err := k.Store.Acquire(k.ctx, p)
				what := fmt.Sprintf("policy %s, %s token, equal fingerprint %t", caller, whose, equal)
				if err != nil || a.Verdict != want.verdict {
					k.Errorf("%s: %q, %v; want %s", what, a.Verdict, err, want.verdict)
					continue
				}
				s.checkAcquired(k, what, p, a, before, want, equal)
			}
		}
	}
}

// checkAcquired looks at the answer of an Acquire and at the row after it.
func (s situation) checkAcquired(k *K, what string, p idempo.AcquireParams, a idempo.Acquired, before idempo.Record, want outcome, equal bool) {
	k.Helper()
	after := k.look(p.Key, p.Now)
	if (a.RetryAfter > 0) != want.waits {
		k.Errorf("%s: RetryAfter %s, want any: %t", what, a.RetryAfter, want.waits)
	}
	if want.verdict != idempo.VerdictRun {
		k.same(what+": the refused call's row", after, before)
		shown := before
		switch want.verdict {
		case idempo.VerdictMismatch:
			if a.Record.Result.Status != 0 || a.Record.Result.Body != nil || len(a.Record.Result.Header) > 0 || !a.Record.Result.Resource.IsZero() {
				k.Errorf("%s: a mismatch shows the result %v", what, a.Record.Result)
			}
			return
		case idempo.VerdictExpired:
			if !equal {
				shown.Result.Resource = idempo.Resource{}
			}
		case idempo.VerdictInDoubt:
			shown.State = idempo.StateInDoubt // a stricter caller may see it earlier than the record's own policy
		}
		k.same(what+": the record shown", a.Record, shown)
		return
	}
	if before.State == idempo.StatePending && !s.lapsed { // its own claim, recognised
		k.same(what+": the recognised claim", a.Record, before)
		k.same(what+": the row", after, before)
		return
	}
	attempts := []int64{s.attempt + 1}
	if s.gone {
		attempts = append(attempts, 1) // a store may have forgotten it meanwhile
		if k.caps.Sweep && s.name == "gone" {
			attempts = attempts[:1]
		}
	}
	if !slices.Contains(attempts, a.Record.Attempt) {
		k.Errorf("%s: attempt %d, want %d", what, a.Record.Attempt, attempts)
	}
	if a.Lapsed != want.lapsed {
		k.Errorf("%s: Lapsed %t, want %t", what, a.Lapsed, want.lapsed)
	}
	k.same(what+": the row of the winner", after, a.Record)
	for _, field := range []struct {
		name      string
		got, want any
	}{
		{"State", after.State, idempo.StatePending}, {"Token", after.Token == p.Token, true}, {"Owner", after.Owner, p.Owner},
		{"OnCrash", after.OnCrash == "", false}, {"ClaimedAt", after.ClaimedAt.Equal(p.Now), true},
		{"LeaseUntil", after.LeaseUntil.Equal(p.Now.Add(lease)), true}, {"StartedAt", after.StartedAt.Equal(p.Now), true},
		{"Hash", string(after.Hash), string(p.Hash)}, {"Generation", after.Generation, int64(1)},
		{"CompletedAt", after.CompletedAt.IsZero(), true}, {"ExpiresAt", after.ExpiresAt.IsZero(), true},
		{"the result", after.Result.Equal(idempo.Result{}), true}, {"DerivedKey", after.DerivedKey, p.DerivedKey},
	} {
		if field.got != field.want {
			k.Errorf("%s: %s of the winner is %v, want %v", what, field.name, field.got, field.want)
		}
	}
}

// issueCell: where a key may be handed out, it is; an issued one stays as it is; no other row changes.
func (s situation) issueCell(k *K) {
	p, at, before := s.begin(k)
	p = k.again(p, at)
	p.Issue = 2 * time.Hour
	a, err := k.Store.Acquire(k.ctx, p)
	k.ok(err)
	after := k.look(p.Key, at)
	if s.state != "" {
		k.same("the row", after, before)
		return
	}
	if a.Verdict != idempo.VerdictRun || after.State != idempo.StateIssued || !after.IssuedUntil.Equal(at.Add(2*time.Hour)) ||
		!after.ExpiresAt.Equal(at.Add(2*time.Hour)) || !after.Token.IsZero() {
		k.Errorf("%s, then %q until %s", a.Verdict, after.State, after.IssuedUntil)
	}
}

// tokens calls f for each kind of token, with a fresh situation.
func (s situation) tokens(k *K, f func(what string, own bool, p idempo.AcquireParams, at time.Time, before idempo.Record)) {
	for _, whose := range []string{"own", "foreign", "no"} {
		p, at, before := s.begin(k)
		switch whose {
		case "foreign":
			p.Token = k.token()
		case "no":
			p.Token = idempo.Token{}
		}
		f(whose+" token", whose == "own", p, at, before)
	}
}

func (s situation) renewCell(k *K) {
	s.tokens(k, func(what string, own bool, p idempo.AcquireParams, at time.Time, before idempo.Record) {
		r, err := k.Store.Renew(k.ctx, k.renew(p, at))
		after := k.look(p.Key, at)
		if !own || s.state != idempo.StatePending || s.lapsed {
			k.code(err, "lease_lost")
			k.same(what+": the refused renewal's row", after, before)
			return
		}
		k.ok(err)
		want := before
		want.LeaseUntil, want.ChangedAt = at.Add(lease), at
		k.same(what+": returned", r, want)
		k.same(what+": the row", after, want)
	})
}

// wantComplete is the table's column Complete, own: "completed", "unchanged" or the code of the error.
func (s situation) wantComplete(equal bool) string {
	switch s.state {
	case idempo.StatePending, idempo.StateInDoubt:
		return "completed"
	case idempo.StateFailed:
		return "wrong_state"
	case idempo.StateCompleted:
		if equal {
			return "unchanged"
		}
		return "wrong_state"
	}
	return "lease_lost"
}

func (s situation) completeCell(k *K) {
	for _, equal := range []bool{true, false} {
		s.tokens(k, func(what string, own bool, p idempo.AcquireParams, at time.Time, before idempo.Record) {
			what = fmt.Sprintf("%s, equal result %t", what, equal)
			c := k.done(p, max(s.attempt, 1), at)
			if !equal {
				c.Result.Body = []byte(`{"id":10}`)
				c.Size = int64(len(c.Result.Body))
			}
			want := "lease_lost"
			if own {
				want = s.wantComplete(equal)
			}
			r, err := k.Store.Complete(k.ctx, c)
			after := k.look(p.Key, at)
			if want != "completed" {
				if want == "unchanged" {
					k.ok(err)
				} else {
					k.code(err, want)
				}
				k.same(what+": the row", after, before)
				return
			}
			k.ok(err)
			k.same(what+": returned", r, after)
			if after.State != idempo.StateCompleted || !after.Result.Equal(c.Result) || after.Attempt != s.attempt || !after.CompletedAt.Equal(at) ||
				!after.ExpiresAt.Equal(at.Add(retention)) || !after.GoneAt.Equal(at.Add(retention+tombstone)) || after.Token != p.Token {
				k.Errorf("%s: completed as %+v", what, after)
			}
		})
	}
}

// wantRelease is the table's column Release, own: the state after it ("" is absent), "unchanged", an error's code, or
// "open" where the table says nothing.
func (s situation) wantRelease(to idempo.State) string {
	switch {
	case s.state == idempo.StateFailed:
		return "unchanged"
	case s.state == idempo.StateCompleted:
		return "wrong_state"
	case s.state == idempo.StatePending && !s.lapsed, s.lapsed && !s.started && to != idempo.StateInDoubt, s.lapsed && s.started && to != idempo.StateIssued:
		if to == idempo.StateIssued {
			return ""
		}
		return string(to)
	case s.lapsed:
		return "open"
	case s.state == idempo.StateInDoubt && to == idempo.StateFailed:
		return string(to)
	case s.state == idempo.StateInDoubt && to == idempo.StateInDoubt:
		return "unchanged"
	case s.state == idempo.StateInDoubt:
		return "open"
	}
	return "lease_lost"
}

func (s situation) releaseCell(k *K) {
	for _, to := range []idempo.State{idempo.StateFailed, idempo.StateInDoubt, idempo.StateIssued} {
		s.tokens(k, func(what string, own bool, p idempo.AcquireParams, at time.Time, before idempo.Record) {
			what = fmt.Sprintf("%s, to %s", what, to)
			want := "lease_lost"
			if own {
				want = s.wantRelease(to)
			}
			r, err := k.Store.Release(k.ctx, k.release(p, to, at))
			after := k.look(p.Key, at)
			switch want {
			case "open":
			case "lease_lost", "wrong_state":
				k.code(err, want)
				k.same(what+": the refused release's row", after, before)
			case "unchanged":
				k.ok(err)
				k.same(what+": the row", after, before)
			default:
				k.ok(err)
				if string(after.State) != want || string(r.State) != want {
					k.Errorf("%s: state %q, returned %q; want %q", what, after.State, r.State, want)
				}
				if want == string(idempo.StateFailed) && !after.ExpiresAt.Equal(at.Add(retention)) {
					k.Errorf("%s: a failure binds its fingerprint until %s", what, after.ExpiresAt)
				}
				if want != "" && (after.Note != "connection refused" || after.Attempt != s.attempt || string(after.Hash) != string(p.Hash)) {
					k.Errorf("%s: released as %+v", what, after)
				}
			}
		})
	}
}

// lookupCell: reading shows the effective state and changes nothing.
func (s situation) lookupCell(k *K) {
	p, at, before := s.begin(k)
	k.same("read twice", k.look(p.Key, at), before)
	if s.state != "" && !before.Now.Equal(at) {
		k.Errorf("the store's clock was %s, the record says %s", at, before.Now)
	}
	brief, err := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: p.Key, WithoutBody: true, Now: at})
	k.ok(err)
	before.Result.Body = nil
	k.same("without body", brief, before)
}
