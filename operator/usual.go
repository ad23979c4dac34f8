package operator

import (
	"context"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// Usual returns how long the work of an operation usually takes: the median over at most 200 of its completed records, and
// false where there are fewer than 5 to tell from.
func Usual(ctx context.Context, l Lister, operation string) (time.Duration, bool, error) {
	page, err := l.List(ctx, FindParams{Operation: operation, State: idempo.StateCompleted, Limit: 200})
	if err != nil || len(page.Records) < 5 {
		return 0, false, err
	}
	took := make([]time.Duration, len(page.Records))
	for i, r := range page.Records {
		took[i] = r.CompletedAt.Sub(r.ClaimedAt)
	}
	slices.Sort(took)
	return took[len(took)/2], true, nil
}

// Stuck says whether a pending record has been at it for over three times as long as usual. Where nobody knows what is usual,
// it is stuck if it has outlived three of its own leases.
func Stuck(r idempo.Record, usual time.Duration, known bool) bool {
	if r.State != idempo.StatePending || r.ClaimedAt.IsZero() {
		return false
	}
	if !known {
		usual = r.LeaseUntil.Sub(r.ChangedAt)
	}
	return r.Now.Sub(r.ClaimedAt) > 3*usual
}

// stuckness asks what is usual once for each operation.
type stuckness struct {
	lister Lister
	usual  map[string]usualTime
}

type usualTime struct {
	d     time.Duration
	known bool
}

func (s *stuckness) is(ctx context.Context, r idempo.Record) (bool, error) {
	u, ok := s.usual[r.Key.Operation]
	if !ok {
		var err error
		if u.d, u.known, err = Usual(ctx, s.lister, r.Key.Operation); err != nil {
			return false, err
		}
		if s.usual == nil {
			s.usual = map[string]usualTime{}
		}
		s.usual[r.Key.Operation] = u
	}
	return Stuck(r, u.d, u.known), nil
}
