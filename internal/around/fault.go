package around

import (
	"errors"
	"sync"

	"github.com/idempo/idempo"
)

// A Fault is the failure of one store call.
type Fault struct {
	N     int    // which call, from 1; the calls of a transaction count from its begin
	After bool   // it took effect, and only its answer was lost
	Op    string // the call that failed, see Store; "" if none did

	mu sync.Mutex
	n  int
}

// Through is for Store: it lets the Nth call fail with idempo.ErrUnavailable, which admits it where the call may have
// taken effect.
func (f *Fault) Through(op string, call func() error) error {
	f.mu.Lock()
	f.n++
	hit := f.n == f.N
	if hit {
		f.Op = op
	}
	f.mu.Unlock()
	if !hit {
		return call()
	}
	if f.After {
		if err := call(); err != nil {
			return err
		}
	}
	return &idempo.Error{Op: op, Code: "unavailable", Unknown: f.After, Err: errors.New("connection reset")}
}
