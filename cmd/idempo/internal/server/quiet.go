package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quiet passes log records on, but equal errors at most once a second: the next one that passes says how many were held back.
// Errors are equal if level, message and the attributes error, error_code, op and operation are.
type quiet struct {
	next  slog.Handler
	base  string // of WithAttrs, WithGroup
	state *quietState
}

type quietState struct {
	mu   sync.Mutex
	seen map[string]*held
}

type held struct {
	until time.Time
	count int
}

// maxHeld bounds what is remembered: beyond it everything is forgotten, and so logged again.
const maxHeld = 1000

func newQuiet(next slog.Handler) *quiet {
	return &quiet{next: next, state: &quietState{seen: map[string]*held{}}}
}

// Enabled implements slog.Handler.
func (q *quiet) Enabled(ctx context.Context, l slog.Level) bool { return q.next.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *q
	c.next = q.next.WithAttrs(attrs)
	for _, a := range attrs {
		c.base += part(a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (q *quiet) WithGroup(name string) slog.Handler {
	c := *q
	c.next = q.next.WithGroup(name)
	c.base += name + "."
	return &c
}

// Handle implements slog.Handler.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelError {
		return q.next.Handle(ctx, r)
	}
	var b strings.Builder
	b.WriteString(q.base + r.Level.String() + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(part(a))
		return true
	})
	pass, suppressed := q.state.pass(b.String(), r.Time)
	if !pass {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return q.next.Handle(ctx, r)
}

func part(a slog.Attr) string {
	switch a.Key {
	case "error", "error_code", "op", "operation":
		return "\x00" + a.Key + "=" + a.Value.String()
	}
	return ""
}

func (s *quietState) pass(key string, now time.Time) (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.seen[key]
	if h != nil && now.Before(h.until) {
		h.count++
		return false, 0
	}
	if h == nil {
		if len(s.seen) >= maxHeld {
			clear(s.seen)
		}
		h = &held{}
		s.seen[key] = h
	}
	n := h.count
	h.until, h.count = now.Add(time.Second), 0
	return true, n
}
