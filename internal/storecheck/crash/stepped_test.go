package crash

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
)

// durable is what every store of a database is.
type durable interface {
	idempo.Store
	idempo.Transactor
	idempo.Joiner
}

var _ durable = (*stepped)(nil)

// stepped is a store that says where a call is: before and after it asks the real one.
type stepped struct {
	inner  durable
	stage  *crashtest.Stage
	doomed bool
	phase  atomic.Value // string: what a COMMIT seen below belongs to
	renew  sync.RWMutex // of a doomed service, held for good once the result is being stored: no renewal shares its commit
}

// committing names the COMMIT that is about to be sent, "" if it is of no interest.
func (s *stepped) committing() string {
	p, _ := s.phase.Load().(string)
	return p
}

func (s *stepped) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	s.stage.At("claim", nil)
	s.phase.Store("of the claim")
	a, err := s.inner.Acquire(ctx, p)
	s.phase.Store("")
	if err == nil && a.Verdict == idempo.VerdictRun {
		s.stage.At("claimed", nil)
	}
	return a, err
}

func (s *stepped) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	if s.doomed {
		s.renew.Lock()
	}
	s.phase.Store("of the result")
	r, err := s.inner.Complete(ctx, p)
	if err == nil {
		s.stage.At("completed", nil)
	}
	return r, err
}

func (s *stepped) InTx(ctx context.Context, fn func(context.Context) error) error {
	return s.inner.InTx(ctx, fn)
}

func (s *stepped) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	s.renew.RLock()
	defer s.renew.RUnlock()
	return s.inner.Renew(ctx, p)
}

func (s *stepped) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	return s.inner.Release(ctx, p)
}

func (s *stepped) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	return s.inner.Lookup(ctx, p)
}

func (s *stepped) Joined(ctx context.Context) (tx, own bool, err error) { return s.inner.Joined(ctx) }
