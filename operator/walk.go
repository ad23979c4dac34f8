package operator

import (
	"context"
	"time"
)

const (
	bulkBatch   = 100  // how many share a transaction
	maxSample   = 5    // of a plan
	maxFailures = 1000 // that are told one by one
)

// walk goes through a list and does something to what it finds, in batches. It is what every bulk has in common.
type walk[T any] struct {
	dry         bool            // nothing is done, so nothing is waited for
	limit, rate int             // of what is done: at most so many, so many a second
	stop        <-chan struct{} // closed: ends after the batch that runs
	page        func(ctx context.Context, after string) (found []T, next string, err error)
	cursor      func(T) string                  // where the list goes on behind it
	take        func(T) (yes bool, err error)   // whether it is to be done; who says so keeps it
	do          func(ctx context.Context) error // to what was taken since the last one
}

// run returns the cursor that goes on where it ended early, "" if it is done, and whether it was stopped. On an error
// nothing is known of the batch that ran.
func (w walk[T]) run(ctx context.Context, after string) (next string, stopped bool, err error) {
	n, batch, last := 0, 0, after
	for {
		found, more, err := w.page(ctx, after)
		if err != nil {
			return "", false, err
		}
		for _, x := range found {
			if n >= w.limit {
				return last, false, w.do(ctx)
			}
			yes, err := w.take(x)
			if err != nil {
				return "", false, err
			}
			if last = w.cursor(x); yes {
				n, batch = n+1, batch+1
			}
			if batch < bulkBatch {
				continue
			}
			if err := w.paced(ctx, batch); err != nil {
				return "", false, err
			}
			if batch = 0; closed(w.stop) {
				return last, true, nil
			}
		}
		if more == "" {
			return "", false, w.do(ctx)
		}
		after = more
	}
}

// paced does a batch and waits until the rate allows the next.
func (w walk[T]) paced(ctx context.Context, n int) error {
	start := time.Now()
	if err := w.do(ctx); err != nil {
		return err
	}
	rest := time.Duration(n)*time.Second/time.Duration(w.rate) - time.Since(start)
	if rest <= 0 || w.dry {
		return nil
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
