package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/idempo/idempo/memstore"
)

// Memory opens a memstore with everything the kit can look at; wrappers of stores are tested on top of it.
func Memory(t testing.TB) Subject {
	s := memstore.New(memstore.Options{})
	var mu sync.Mutex
	effects := map[string]int{}
	t.Cleanup(func() { CheckInvariants(t, s) })
	return Subject{
		Store: s,
		Effect: func(ctx context.Context, name string) (err error) {
			defer func() { // memstore holds it for a mistake in the program
				if v := recover(); v != nil {
					err = fmt.Errorf("effect: %v", v)
				}
			}()
			memstore.OnCommit(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				effects[name]++
			})
			return nil
		},
		Count: func(_ context.Context, name string) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return effects[name], nil
		},
		End: func(ctx context.Context) error {
			memstore.Current(ctx).Rollback()
			return nil
		},
		Own: func(ctx context.Context) (context.Context, func() error, func() error, error) {
			ctx, tx, err := s.Begin(ctx)
			if err != nil {
				return nil, nil, nil, err
			}
			return ctx, tx.Commit, func() error { tx.Rollback(); return nil }, nil
		},
	}
}
