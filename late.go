package idempo

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// lateWrite is one settling write of a leased claim.
type lateWrite struct {
	op       string
	complete *CompleteParams
	release  *ReleaseParams
}

func (w lateWrite) size() int64 {
	if w.complete == nil {
		return 256
	}
	n := int64(len(w.complete.Result.Body)) + 512
	for _, h := range w.complete.Result.Header {
		n += int64(len(h[0]) + len(h[1]))
	}
	return n
}

func (w lateWrite) do(ctx context.Context, e *Engine) (rec Record, err error) {
	if w.complete != nil {
		err = e.timed(ctx, "complete", w.op, func() error {
			rec, err = e.store.Complete(ctx, *w.complete)
			return err
		})
		return rec, err
	}
	err = e.timed(ctx, "release", w.op, func() error {
		rec, err = e.store.Release(ctx, *w.release)
		return err
	})
	return rec, err
}

// write stores a settling write, detached from the caller. Outside of a transaction it is tried for CompleteBudget and
// then goes on in the background; the error then matches ErrInDoubt.
func (c *Claim) write(ctx context.Context, w lateWrite) (Record, error) {
	limit := &limited{}
	if c.final != nil && c.final.saving.parent == nil {
		limit = &c.final.saving
	}
	limit.parent, limit.detached, limit.deadline = ctx, true, time.Now().Add(c.e.cfg.CompleteBudget)
	defer limit.end(context.Canceled)
	if c.inTx {
		return w.do(limit, c.e)
	}
	for try := 0; ; try++ {
		rec, err := w.do(limit, c.e)
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return rec, err
		}
		if !sleep(limit, backoff.Full(try, 50*time.Millisecond, time.Second)) {
			late := w
			c.e.late.add(&late)
			return Record{}, &Error{Op: "complete", Code: "in_doubt", KeyRef: c.Ref(), Attempt: c.attempt, Unknown: true,
				RetryAfter: time.Second, Hint: "saving goes on in the background; idempo keys show " + c.Ref(), Err: err}
		}
	}
}

// Bounds of what is saved in the background, and for how long one write is tried.
const (
	maxLate      = 1000
	maxLateBytes = 64 << 20
	maxLateFor   = time.Hour
)

// late saves results whose store was away when they were made. One goroutine works while there is something to save.
type late struct {
	e     *Engine
	mu    sync.Mutex
	queue []*lateWrite
	bytes int64
	idle  chan struct{} // closed when the worker stops; nil: none works
	quit  context.CancelFunc
	soon  chan struct{} // the worker is not to wait; nil while none works
	works atomic.Bool   // there is a worker
}

// hurry tells a worker that waits for the store that it answers, so that a key that is to be given back is not blocked for
// longer than need be. It costs nothing while there is none.
func (l *late) hurry() {
	if !l.works.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.soon <- struct{}{}:
	default:
	}
}

func (l *late) add(w *lateWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxLate || l.bytes+w.size() > maxLateBytes {
		l.e.warn("result dropped: too many wait to be saved", "operation", w.op)
		return
	}
	l.queue = append(l.queue, w)
	l.bytes += w.size()
	if l.idle == nil {
		ctx, cancel := context.WithTimeout(context.Background(), maxLateFor)
		l.idle, l.quit, l.soon = make(chan struct{}), cancel, make(chan struct{}, 1)
		l.works.Store(true)
		go l.work(ctx, l.idle, l.soon)
	}
}

func (l *late) work(ctx context.Context, idle, soon chan struct{}) {
	defer close(idle)
	for try := 0; ; {
		l.mu.Lock()
		if len(l.queue) == 0 || ctx.Err() != nil {
			l.quit()
			l.idle, l.soon = nil, nil
			l.works.Store(false)
			l.mu.Unlock()
			return
		}
		w := l.queue[0]
		l.mu.Unlock()
		one, cancel := context.WithTimeout(ctx, l.e.cfg.CompleteBudget)
		_, err := w.do(one, l.e)
		cancel()
		if errors.Is(err, ErrUnavailable) {
			t := time.NewTimer(backoff.Full(try, 100*time.Millisecond, 5*time.Second))
			select {
			case <-t.C:
			case <-soon:
			case <-ctx.Done():
			}
			t.Stop()
			try++
			continue
		}
		try = 0 // stored, or settled by another: fenced
		l.mu.Lock()
		l.queue = l.queue[1:]
		l.bytes -= w.size()
		l.mu.Unlock()
	}
}

// wait returns when nothing is left to save, or ctx ends and the worker has stopped, with the number left.
func (l *late) wait(ctx context.Context) int {
	l.mu.Lock()
	idle, quit := l.idle, l.quit
	l.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			quit()
			<-idle
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

func (e *Engine) warn(msg string, args ...any) {
	if e.cfg.Logger != nil {
		e.cfg.Logger.Warn(msg, args...)
	}
}
