package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// Moment is something that happened to a key.
type Moment struct {
	At      time.Time
	Attempt int64
	What    string // created, claimed, started, completed, in_doubt, failed, taken over, or an action
	Who     string // owner or actor
	Text    string // note or reason
}

// timeline puts attempts and audit in order. Moments of one time keep the order in which they must have come.
func timeline(s Shown) []Moment {
	var all []Moment
	add := func(at time.Time, attempt int64, what, who, text string) {
		if !at.IsZero() {
			all = append(all, Moment{At: at, Attempt: attempt, What: what, Who: who, Text: text})
		}
	}
	r := s.Record
	if r.Attempt == 0 || !r.IssuedUntil.IsZero() {
		add(r.CreatedAt, 0, "created", "", "")
	}
	known := map[int64]bool{}
	attempt := func(a idempo.Record, current bool) {
		if a.Attempt == 0 || known[a.Attempt] && current {
			return // settled by an operator: its end is in the audit
		}
		known[a.Attempt] = true
		add(a.ClaimedAt, a.Attempt, "claimed", a.Owner, "")
		if !a.StartedAt.Equal(a.ClaimedAt) {
			add(a.StartedAt, a.Attempt, "started", a.Owner, "")
		}
		switch {
		case a.State == idempo.StateCompleted || a.State == idempo.StateExpired:
			text := fmt.Sprintf("status %d", a.Result.Status)
			if a.Result.Failing {
				text += ", failing"
			}
			add(a.CompletedAt, a.Attempt, "completed", a.Owner, text)
		case a.State == idempo.StatePending && current:
		case current && a.State == idempo.StateInDoubt && DoubtfulSince(a).Equal(a.LeaseUntil):
			add(a.LeaseUntil, a.Attempt, "lease ended", a.Owner, "")
		case a.State == idempo.StatePending:
			add(a.ChangedAt, a.Attempt, "ended without an answer", a.Owner, a.Note)
		default:
			add(a.ChangedAt, a.Attempt, string(a.State), a.Owner, a.Note)
		}
	}
	for _, a := range s.Attempts {
		attempt(a, false)
	}
	attempt(r, true)
	for _, e := range s.Audit {
		what := string(e.Action)
		if e.Outcome == OutcomeRefused {
			what += " refused: " + e.Code
		} else if e.After != e.Before {
			what += ": " + string(e.Before) + " → " + string(e.After)
		}
		add(e.At, e.Attempt, what, e.Actor, e.Reason)
	}
	slices.SortStableFunc(all, func(a, b Moment) int { return a.At.Compare(b.At) })
	return all
}
