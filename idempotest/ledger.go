package idempotest

import (
	"context"
	"sync"
	"testing"

	"github.com/idempo/idempo/memstore"
)

// Ledger counts effects by name. The zero value is empty. It is safe for concurrent use.
type Ledger struct {
	mu sync.Mutex
	n  map[string]int
}

// Add counts one effect called name, at once: an outside effect.
func (l *Ledger) Add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = map[string]int{}
	}
	l.n[name]++
}

// AddOnCommit counts one effect called name when the memstore transaction in ctx commits, and none if it rolls back: a
// local effect. Outside a transaction it panics.
func (l *Ledger) AddOnCommit(ctx context.Context, name string) {
	memstore.OnCommit(ctx, func() { l.Add(name) })
}

// Count returns how often name happened.
func (l *Ledger) Count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n[name]
}

// Want fails the test unless name happened n times.
func (l *Ledger) Want(t testing.TB, name string, n int) {
	t.Helper()
	if got := l.Count(name); got != n {
		t.Errorf("%s happened %d times, want %d", name, got, n)
	}
}
