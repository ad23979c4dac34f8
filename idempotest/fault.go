package idempotest

import (
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/around"
)

// Around returns s with through around every call: op is acquire, renew, complete, release, forget (a Release to
// idempo.StateIssued), lookup, or tx for a whole transaction, which contains the calls in it. through does the call, or
// not, and returns what the caller is told. The result has transactions exactly if s has; it neither sweeps nor takes.
func Around(s idempo.Store, through func(op string, call func() error) error) idempo.Store {
	return around.Store(s, through)
}

// Fault is the failure of one store call: the Nth, before or after it took effect. Its Through is for Around.
type Fault = around.Fault

// EveryFault calls f with an engine over s whose Nth store call fails, before or after it took effect, for N = 1, 2, …
// until a run meets no failure. f must use a key of its own each time, and look at what must hold after the fault. When
// f has returned the engine is drained; claims that are left fail the test.
func EveryFault(t testing.TB, s idempo.Store, c idempo.Config, f func(e *idempo.Engine, fault *Fault)) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			if n > 100 {
				t.Fatal("idempotest: a run with more than 100 store calls")
			}
			fault := &Fault{N: n, After: after}
			e := EngineWith(t, around.Store(s, fault.Through), c)
			f(e, fault)
			drained(t, e)
			if fault.Op == "" {
				break
			}
		}
	}
}
