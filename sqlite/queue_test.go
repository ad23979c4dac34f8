package sqlite

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/idempo/idempo"
)

func yield() { runtime.Gosched() }

func TestQueue(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ2] the line is served in the order of arrival", func(t *testing.T) {
		t.Parallel()
		var q queue
		if err := q.enter(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := q.enter(t.Context(), nil); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				q.leave()
			})
			until(t, func() bool { return q.waiting() == i+1 })
		}
		q.leave()
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 50 {
			t.Error(order)
		}
	})
	t.Run("[stores/L9] who waits for a key that another transaction came to hold is sent away", func(t *testing.T) {
		t.Parallel()
		var q queue
		_ = q.enter(t.Context(), nil)
		a, b := idempo.Key{ID: "a"}, idempo.Key{ID: "b"}
		got := make(chan error, 1)
		go func() { got <- q.enter(t.Context(), []idempo.Key{a}) }()
		until(t, func() bool { return q.waiting() == 1 })
		other := make(chan error, 1)
		go func() { other <- q.enter(t.Context(), []idempo.Key{b}) }()
		until(t, func() bool { return q.waiting() == 2 })
		q.sendAway([]idempo.Key{a})
		if err := <-got; !errors.Is(err, errOpen) {
			t.Error(err)
		}
		q.leave()
		if err := <-other; err != nil {
			t.Error(err)
		}
	})
	t.Run("a waiter whose context ends leaves the line to the others", func(t *testing.T) {
		t.Parallel()
		var q queue
		_ = q.enter(t.Context(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- q.enter(ctx, nil) }()
		until(t, func() bool { return q.waiting() == 1 })
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		q.leave()
		if err := q.enter(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("close refuses who waits and who comes, and waits for who is in", func(t *testing.T) {
		t.Parallel()
		var q queue
		_ = q.enter(t.Context(), nil)
		got := make(chan error, 1)
		go func() { got <- q.enter(t.Context(), nil) }()
		until(t, func() bool { return q.waiting() == 1 })
		closed := make(chan bool, 1)
		go func() { closed <- q.close() }()
		if err := <-got; !errors.Is(err, errClosed) {
			t.Error(err)
		}
		if err := q.enter(t.Context(), nil); !errors.Is(err, errClosed) {
			t.Error(err)
		}
		select {
		case <-closed:
			t.Error("closed under a transaction")
		default:
		}
		q.leave()
		if !<-closed || q.close() {
			t.Error("first is true once")
		}
	})
}
