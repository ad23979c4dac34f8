package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/idempo/idempo"
)

// sweeper is where this process is with sweeping.
type sweeper struct {
	mu    sync.Mutex
	name  string // of this process in the sweep lease
	block int64  // where the next stretch of the table begins
}

func newSweeper() string { return rand.Text() }

// A batch looks for plain records in stretches of the table, so that no statement reads a big table as a whole.
const (
	stretch   = 4096 // blocks a statement
	stretches = 16   // statements a batch
)

// Sweep implements idempo.Sweeper. One process at a time sweeps: the others get 0. Records that somebody has locked are
// left for the next batch.
func (s *Store) Sweep(ctx context.Context, batch int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, &idempo.Error{Op: "sweep", Code: "unavailable", Err: shown(err)}
	}
	s.sweep.mu.Lock()
	defer s.sweep.mu.Unlock()
	done, err := s.sweepBatch(ctx, batch)
	if err != nil {
		return done, failed("sweep", idempo.Key{}, err, false)
	}
	return done, nil
}

func (s *Store) sweepBatch(ctx context.Context, batch int) (done int, err error) {
	var mine int
	var blocks int64
	lease := s.q["sweep_lease"].with(nil, "sweeper", s.sweep.name, "records", s.names.Table("records"))
	lease.Row = func(scan func(...any) error) error { return scan(&mine, &blocks) }
	if err := s.run(ctx, nil, lease); err != nil || mine == 0 {
		return 0, err
	}
	whole := (blocks + stretch) / stretch // the rest of the table may not fill a stretch
	for range min(whole, stretches) {
		if s.sweep.block > blocks {
			s.sweep.block = 0
		}
		n, full, err := s.sweepStretch(ctx, batch-done)
		done += n
		if err != nil || done >= batch {
			return done, err
		}
		if !full {
			s.sweep.block += stretch
		}
	}
	end := s.q["sweep_end"].with(nil, "sweeper", s.sweep.name)
	return done, s.run(ctx, nil,
		s.q["watch"].with(nil, "sweeper", s.sweep.name), s.q["rewatch"].with(nil, "batch", int64(batch)), end)
}

// sweepStretch sweeps the watched and one stretch of the plain; full says that there was more of them than fits.
func (s *Store) sweepStretch(ctx context.Context, batch int) (done int, full bool, err error) {
	st := s.q["sweep"].with(nil, "batch", int64(batch),
		"from", fmt.Sprintf("(%d,0)", s.sweep.block), "to", fmt.Sprintf("(%d,0)", s.sweep.block+stretch))
	st.Row = func(scan func(...any) error) error {
		var locked, due int
		err := scan(&done, &locked, &due)
		full = due >= batch
		return err
	}
	err = s.run(ctx, nil, st)
	return done, full, err
}
