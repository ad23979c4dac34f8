package idempo

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

var errTest = errors.New("why")

func TestLimitedEnds(t *testing.T) {
	background := context.Background()
	ended := func(err, cause error) func(t *testing.T, ctx context.Context) {
		return func(t *testing.T, ctx context.Context) {
			t.Helper()
			if ctx.Err() != err || !errors.Is(context.Cause(ctx), cause) {
				t.Errorf("Err %v, cause %v; want %v, %v", ctx.Err(), context.Cause(ctx), err, cause)
			}
		}
	}
	for _, c := range []struct {
		name string
		end  func(l *limited, parent, tied func(error))
		want func(*testing.T, context.Context)
	}{
		{"by end", func(l *limited, _, _ func(error)) { l.end(errTest) }, ended(context.Canceled, errTest)},
		{"twice: the first counts", func(l *limited, _, _ func(error)) { l.end(errTest); l.end(errLater) }, ended(context.Canceled, errTest)},
		{"by its parent", func(_ *limited, parent, _ func(error)) { parent(errTest) }, ended(context.Canceled, errTest)},
		{"by its tie", func(_ *limited, _, tied func(error)) { tied(errTest) }, ended(context.Canceled, errTest)},
		{"at its deadline", func(*limited, func(error), func(error)) { time.Sleep(time.Minute) }, ended(context.DeadlineExceeded, context.DeadlineExceeded)},
	} {
		for _, who := range []string{"nobody", "Done", "a child", "AfterFunc"} {
			t.Run(c.name+", waited for by "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, parent := context.WithCancelCause(background)
					defer parent(nil)
					tie := &limited{parent: background, detached: true}
					defer tie.end(context.Canceled)
					l := &limited{parent: ctx, tied: tie, deadline: time.Now().Add(time.Minute)}
					defer l.end(context.Canceled)
					child, cancel, called := context.Context(l), func() {}, make(chan struct{})
					switch who {
					case "Done":
						_ = l.Done()
					case "a child":
						child, cancel = context.WithCancel(l)
					case "AfterFunc":
						context.AfterFunc(l, func() { close(called) })
					}
					defer cancel()
					if l.Err() != nil || child.Err() != nil || context.Cause(child) != nil {
						t.Fatalf("over at once: %v", l.Err())
					}
					c.end(l, parent, tie.end)
					synctest.Wait()
					switch who {
					case "Done":
						<-l.Done()
					case "AfterFunc":
						<-called
					}
					c.want(t, l)
					c.want(t, child)
				})
			})
		}
	}
}

var errLater = errors.New("later")

func TestLimitedDetached(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), claimKey{}, "value"))
	l := detachedFor(ctx, time.Hour)
	defer l.end(context.Canceled)
	child, stop := context.WithCancel(l)
	defer stop()
	cancel(errTest)
	if l.Err() != nil || child.Err() != nil || context.Cause(l) != nil {
		t.Errorf("ended with its parent: %v, %v", l.Err(), context.Cause(l))
	}
	if l.Value(claimKey{}) != "value" {
		t.Error("lost the values of its parent")
	}
}

// A child that is made while its parent ends must neither hang nor be missed.
func TestLimitedEndsWhileItIsWatched(t *testing.T) {
	for range 2000 {
		l := &limited{parent: context.Background(), detached: true}
		tied := &limited{parent: context.Background(), tied: l}
		go l.end(errTest)
		child, cancel := context.WithCancel(tied)
		<-child.Done()
		if !errors.Is(context.Cause(child), errTest) {
			t.Fatalf("cause %v", context.Cause(child))
		}
		cancel()
	}
	runtime.Gosched()
}
