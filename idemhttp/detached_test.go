package idemhttp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDetachedKeepsValuesAndNothingElse(t *testing.T) {
	t.Parallel()
	type name struct{}
	own := new(int) // a key of the type that package context uses for its own
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(context.WithValue(context.WithValue(t.Context(), name{}, "kept"), own, "kept too"), time.Minute)
		if _, ok := cancelKey().(*int); !ok {
			t.Fatalf("overheard %T", cancelKey())
		}
		d := &detached{values: parent, cancelKey: cancelKey()}
		child, end := context.WithCancelCause(d)
		defer end(nil)
		bound, stop := context.WithTimeout(d, time.Hour)
		defer stop()
		cancel()
		synctest.Wait()
		if d.Value(name{}) != "kept" || child.Value(name{}) != "kept" || d.Value(own) != "kept too" {
			t.Error("a value is lost")
		}
		if _, ok := d.Deadline(); ok || d.Err() != nil || d.Done() != nil || context.Cause(d) != nil {
			t.Error("the end of the parent shows", context.Cause(d))
		}
		if over := (ended{d}); context.Cause(over) != context.DeadlineExceeded {
			t.Errorf("the cause of the parent shows in a context of another kind: %v", context.Cause(over))
		}
		if child.Err() != nil || context.Cause(child) != nil {
			t.Error("a child ended with the parent")
		}
		cause := errors.New("own")
		end(cause)
		if context.Cause(child) != cause {
			t.Errorf("cause %v", context.Cause(child))
		}
		time.Sleep(time.Hour + 1)
		if !errors.Is(bound.Err(), context.DeadlineExceeded) {
			t.Errorf("bound %v", bound.Err())
		}
	})
}

// ended is a context that ended in a way of its own, such as the engine's.
type ended struct{ context.Context }

func (ended) Err() error { return context.DeadlineExceeded }
