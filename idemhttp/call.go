package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

// call is what a guarded handler may say about its own attempt. It travels in the request's context.
type call struct {
	key   idempo.Key
	guard idempo.Guard

	mu        sync.Mutex
	outcome   Outcome
	result    ResultMode
	resource  idempo.Resource
	retention time.Duration
	err       error
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value((*callKey)(nil)).(*call)
	return c
}

// reset forgets what an attempt said that was rolled back.
func (c *call) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome, c.result, c.resource, c.retention, c.err = "", "", idempo.Resource{}, 0, nil
}

func (c *call) said() (Outcome, ResultMode, idempo.Resource, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcome, c.result, c.resource, c.retention
}

// SetOutcome says what becomes of this attempt and its answer, before Rules.Outcomes and the table of defaults. The last
// call counts. A panic or an answer shorter than declared still counts as broken. It returns an error, and changes nothing,
// for an unknown outcome and for OutcomeInDoubt in an atomic operation, where the database knows. Outside a guarded handler
// it does nothing. Safe for concurrent use.
func SetOutcome(ctx context.Context, o Outcome) error {
	c := callOf(ctx)
	switch {
	case !o.known():
		return fmt.Errorf("set outcome: %q is none of keep, keep_failure, release, in_doubt", string(o))
	case c == nil:
		return nil
	case o == OutcomeInDoubt && c.guard == idempo.GuardAtomic:
		return fmt.Errorf("set outcome: in_doubt is for leased operations; in an atomic one the database knows, use release")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome = o
	return nil
}

// SetError gives the error behind an answer that is not kept. In an atomic operation it matters: where it is a serialization
// failure, a deadlock or a lock time-out of the database, the whole handler runs again instead of failing. A store that sees
// the statements of its transactions (idempgx) needs no such hint; over database/sql nobody else sees the error.
// It is neither kept nor logged. The last call counts. Outside a guarded handler it does nothing. Safe for concurrent use.
func SetError(ctx context.Context, err error) {
	if c := callOf(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	}
}

// failure is what SetError said, for a transaction that is to be rolled back.
func (c *call) failure() error {
	if c.guard != idempo.GuardAtomic {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// SetResource names what this request made. The pointer is kept with the answer and outlives it. Without it the Location of
// a kept answer is the pointer, with type "location". It returns an error, and changes nothing, where kind or id has more
// than 255 bytes. Outside a guarded handler it does nothing. Safe for concurrent use.
func SetResource(ctx context.Context, kind, id string) error {
	if len(kind) > 255 || len(id) > 255 {
		return errors.New("set resource: kind and id hold at most 255 bytes each")
	}
	if c := callOf(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resource = idempo.Resource{Type: kind, ID: id}
	}
	return nil
}

// SetResult says how much of this answer is kept, before Rules.Result. It returns an error for an unknown mode. Outside a
// guarded handler it does nothing. Safe for concurrent use.
func SetResult(ctx context.Context, mode ResultMode) error {
	if mode != ResultFull && mode != ResultPointer {
		return fmt.Errorf("set result: %q is neither full nor pointer", string(mode))
	}
	if c := callOf(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.result = mode
	}
	return nil
}

// SetRetention sets how long the answer of this request is kept after completion; zero is the operation's own. It returns an
// error, and changes nothing, for a negative duration and for idempo.Forever, which only tombstones may be. Outside a guarded
// handler it does nothing. Safe for concurrent use.
func SetRetention(ctx context.Context, d time.Duration) error {
	if d < 0 || d == idempo.Forever {
		return fmt.Errorf("set retention: %v is not allowed: give a positive duration, or zero for the operation's own", d)
	}
	if c := callOf(ctx); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.retention = d
	}
	return nil
}
