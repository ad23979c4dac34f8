package history

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kinds of answers.
const (
	run     = "run"
	replay  = "replay"
	wait    = "wait"    // in progress or in doubt: there is no definite answer yet
	refused = "refused" // known: nothing of this call happened
	open    = "open"    // nobody knows
)

// History is what happened, as callers saw it. The zero value is ready; it is safe for concurrent use.
type History struct {
	mu    sync.Mutex
	start time.Time
	calls []*Call
}

// Call is one question of one caller. Exactly one of its methods is called, when the answer is there; a Call without an
// answer is open.
type Call struct {
	// Content is what the work of this call is to answer: nobody else's, and it names the key.
	Content string

	h          *History
	key        string
	begin, end int64
	kind       string
	value      string
	attempt    int64
}

// Begin notes that a caller asks for key.
func (h *History) Begin(key string) *Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.start.IsZero() {
		h.start = time.Now()
	}
	c := &Call{h: h, key: key, Content: fmt.Sprintf("%s|%d", key, len(h.calls)), begin: time.Since(h.start).Nanoseconds(), kind: open}
	h.calls = append(h.calls, c)
	return c
}

// Run notes that the work was done by this call, as the given attempt, and answered value.
func (c *Call) Run(value string, attempt int64) { c.over(run, value, attempt) }

// Replay notes that value was answered from a record.
func (c *Call) Replay(value string) { c.over(replay, value, 0) }

// Wait notes "in progress" or "in doubt".
func (c *Call) Wait() { c.over(wait, "", 0) }

// Refused notes an error that says that nothing happened.
func (c *Call) Refused() { c.over(refused, "", 0) }

// Open notes an error, or a death, after which nobody knows.
func (c *Call) Open() { c.over(open, "", 0) }

func (c *Call) over(kind, value string, attempt int64) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.kind, c.value, c.attempt, c.end = kind, value, attempt, time.Since(c.h.start).Nanoseconds()
}

// Counts says how many answers of each kind there are.
func (h *History) Counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[string]int{}
	for _, c := range h.calls {
		n[c.kind]++
	}
	return n
}

// state of a key: what has been fixed so far.
type state struct {
	fixed   bool
	known   bool // value is; otherwise an open call has fixed one that nobody has seen
	value   string
	attempt int64
}

// step returns the states in which c's answer leaves a key that is in s; none: it cannot be explained.
func step(s state, c *Call) []any {
	switch c.kind {
	case run:
		if s.fixed || c.attempt <= s.attempt {
			return nil
		}
		return []any{state{true, true, c.value, c.attempt}}
	case replay:
		if !s.fixed || s.known && s.value != c.value {
			return nil
		}
		s.known, s.value = true, c.value
		return []any{s}
	case wait:
		if s.fixed {
			return nil
		}
	case open:
		if !s.fixed {
			return []any{s, state{fixed: true, attempt: s.attempt}}
		}
	}
	return []any{s}
}

// patience bounds the search for an order; a search that takes longer is an error.
const patience = time.Minute

// Check returns an error for each key whose answers no order of events explains, or that was given an answer of another
// key. A history without an answer is an error too.
func (h *History) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) == 0 {
		return errors.New("void run: an empty history")
	}
	last := time.Since(h.start).Nanoseconds()
	keys := map[string][]porcupine.Operation{}
	var wrong []error
	for i, c := range h.calls {
		end := c.end
		if c.kind == open || end == 0 {
			end = last + 1 // it may take place at any later time
		}
		if c.value != "" && !strings.HasPrefix(c.value, c.key+"|") {
			wrong = append(wrong, fmt.Errorf("key %s was given the foreign answer %q", c.key, c.value))
		}
		keys[c.key] = append(keys[c.key], porcupine.Operation{ClientId: i, Input: c, Call: c.begin, Output: c, Return: end})
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, _ any) []any { return step(s.(state), in.(*Call)) },
	}
	plain := model.ToModel()
	for key, ops := range keys {
		if r := porcupine.CheckOperationsTimeout(plain, ops, patience); r != porcupine.Ok {
			wrong = append(wrong, fmt.Errorf("key %s: no order of events explains its answers (%s):%s", key, r, list(ops)))
		}
	}
	return errors.Join(wrong...)
}

func list(ops []porcupine.Operation) string {
	var b strings.Builder
	for _, o := range ops {
		c := o.Input.(*Call)
		fmt.Fprintf(&b, "\n  %d to %d: %s %q attempt %d", o.Call, o.Return, c.kind, c.value, c.attempt)
	}
	return b.String()
}
