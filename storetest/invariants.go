package storetest

import (
	"iter"
	"testing"

	"github.com/idempo/idempo"
)

// CheckInvariants wants every record of s to be one that the transition table can make. It sees the records of stores
// that have a method All() iter.Seq[idempo.Record], and says so of others.
func CheckInvariants(t testing.TB, s idempo.Store) {
	t.Helper()
	all, ok := s.(interface {
		All() iter.Seq[idempo.Record]
	})
	if !ok {
		t.Log("invariants: the store does not list its records (method All)")
		return
	}
	for r := range all.All() {
		for _, wrong := range broken(r) {
			t.Errorf("record %s, %s, attempt %d: %s", r.Ref(), r.State, r.Attempt, wrong)
		}
	}
}

// broken names what is wrong with a record by itself.
func broken(r idempo.Record) (wrong []string) {
	rule := func(ok bool, text string) {
		if !ok {
			wrong = append(wrong, text)
		}
	}
	payload := len(r.Result.Header) > 0 || r.Result.Body != nil || r.Result.Status != 0
	rule(len(r.Key.ID) == 32, "the key is no digest")
	rule(r.Generation >= 1, "no generation")
	rule(!r.CreatedAt.IsZero() && !r.ChangedAt.Before(r.CreatedAt), "changed before it was created")
	rule(r.Attempt >= 0, "a negative attempt")
	switch r.State {
	case idempo.StateIssued:
		rule(!r.ExpiresAt.IsZero() && !r.IssuedUntil.IsZero(), "an issued key without an end")
		rule(r.Token.IsZero() && len(r.Hash) == 0, "an issued key is bound")
	case idempo.StatePending:
		rule(!r.LeaseUntil.IsZero(), "pending without a lease end")
		rule(r.Attempt > 0 || !r.DueAt.IsZero(), "claimed without an attempt")
		rule(!r.Token.IsZero() || !r.DueAt.IsZero(), "claimed without a token")
		rule(r.ExpiresAt.IsZero() && r.CompletedAt.IsZero(), "pending with an end")
		rule(!payload, "pending with a result")
	case idempo.StateInDoubt:
		rule(!r.StartedAt.IsZero(), "in doubt about what never started")
		rule(r.ExpiresAt.IsZero(), "a doubt with an end")
		rule(!payload, "in doubt with a result")
	case idempo.StateFailed:
		rule(!r.ExpiresAt.IsZero(), "a failure without an end")
		rule(!payload, "failed with a result")
	case idempo.StateCompleted:
		rule(!r.CompletedAt.IsZero() && !r.ExpiresAt.IsZero(), "completed without its times")
		rule(r.GoneAt.IsZero() || !r.GoneAt.Before(r.ExpiresAt), "the tombstone ends before the result")
		rule(r.Attempt > 0, "completed by nobody") // an operator's completion has no token
		rule(r.DueAt.IsZero(), "completed and due")
		rule(r.BodyKept || r.Result.Body == nil, "a body that was not kept")
	case idempo.StateExpired:
		rule(len(r.Result.Header) == 0 && r.Result.Body == nil && r.Snapshot == nil && r.Detail == nil && r.Note == "" && r.Trace == "", "payload in a tombstone")
	default:
		rule(false, "no such state")
	}
	return wrong
}
