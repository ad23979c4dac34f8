package inbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func TestLaneLocks(t *testing.T) {
	t.Parallel()
	t.Run("those of one lane follow each other in the order in which they came", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var l laneLocks
			l.init()
			leave, err := l.enter(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			other, err := l.enter(t.Context(), "b")
			if err != nil {
				t.Fatal(err)
			}
			other()
			var mu sync.Mutex
			var got []int
			for i := range 5 {
				go func() {
					leave, err := l.enter(t.Context(), "a")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					got = append(got, i)
					mu.Unlock()
					leave()
				}()
				synctest.Wait()
			}
			leave()
			synctest.Wait()
			if !slices.Equal(got, []int{0, 1, 2, 3, 4}) || len(l.lanes) != 0 {
				t.Errorf("%v, %d lanes are left", got, len(l.lanes))
			}
		})
	})
	t.Run("who stops waiting does not hold up the others", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var l laneLocks
			l.init()
			leave, _ := l.enter(t.Context(), "a")
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := make(chan error, 1)
			go func() { _, err := l.enter(ctx, "a"); stopped <- err }()
			synctest.Wait()
			in := make(chan func(), 1)
			go func() { leave, _ := l.enter(t.Context(), "a"); in <- leave }()
			synctest.Wait()
			why := errors.New("enough")
			cancel(why)
			if err := <-stopped; !errors.Is(err, why) {
				t.Error(err)
			}
			leave()
			(<-in)()
			if len(l.lanes) != 0 {
				t.Errorf("%d lanes are left", len(l.lanes))
			}
		})
	})
}
