package operator

import (
	"context"
	"time"

	"github.com/idempo/idempo"
)

// Counter is a store that can count its records. Without it the numbers are missing.
type Counter interface {
	// Count counts the records that match p by their effective state. What is above ExactCounts may be an estimate and
	// says so; it reads a bounded number of rows, takes no lock and writes nothing.
	Count(ctx context.Context, p CountParams) (Stats, error)
}

// ExactCounts is up to where counts are exact.
const ExactCounts = 10_000

// CountParams say what is counted.
type CountParams struct {
	Tenant    string
	Operation string
	Now       time.Time // zero outside tests
}

// Stats are the numbers of a store, or of a part of it.
type Stats struct {
	Counts        []Count // one for each of States, in that order
	OldestInDoubt Oldest
	OldestPending Oldest
	Now           time.Time // on the store's clock
}

// Count is how many records are in a state.
type Count struct {
	State    idempo.State
	Records  int64
	Estimate bool
}

// Oldest is the record that is longest in its state. The zero value says that there is none.
type Oldest struct {
	Key   idempo.Key // as the store has it
	Since time.Time
}

// Add puts another part's numbers to s.
func (s Stats) Add(o Stats) Stats {
	older := func(a, b Oldest) Oldest {
		if a.Since.IsZero() || !b.Since.IsZero() && b.Since.Before(a.Since) {
			return b
		}
		return a
	}
	sum := Stats{OldestInDoubt: older(s.OldestInDoubt, o.OldestInDoubt), OldestPending: older(s.OldestPending, o.OldestPending), Now: o.Now}
	for _, state := range States() {
		a, b := s.Of(state), o.Of(state)
		sum.Counts = append(sum.Counts, Count{State: state, Records: a.Records + b.Records, Estimate: a.Estimate || b.Estimate})
	}
	return sum
}

// Of is the count of one state.
func (s Stats) Of(state idempo.State) Count {
	for _, c := range s.Counts {
		if c.State == state {
			return c
		}
	}
	return Count{State: state}
}

// DoubtfulSince is since when the effective record r is in doubt: the end of its lease where nobody has written it down yet. A note
// says that its owner has: a claim begins without one.
func DoubtfulSince(r idempo.Record) time.Time {
	if r.Note == "" && !r.LeaseUntil.IsZero() && r.LeaseUntil.After(r.ChangedAt) && !r.LeaseUntil.After(r.Now) {
		return r.LeaseUntil
	}
	return r.ChangedAt
}
