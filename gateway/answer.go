package gateway

import (
	"bufio"
	"context"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

// foreignMarkers are headers by which upstreams say that an answer is a repetition. They belong to the one answer they
// came with.
func foreignMarkers() []string {
	return []string{"Idempotency-Replayed", "X-Idempotency-Replayed", "Idempotency-Hit"}
}

// markersOf are the upstream's own markers in an answer, ours by name included; nil: it has none.
func markersOf(h http.Header) http.Header {
	var found http.Header
	for _, name := range [...]string{"Idempotency-Status", "Idempotent-Replayed", "Idempotency-Replayed", "X-Idempotency-Replayed", "Idempotency-Hit"} {
		if v := h[name]; v != nil {
			if found == nil {
				found = http.Header{}
			}
			found[name] = v
		}
	}
	return found
}

// answerWriter is the writer of a guarded request. It lets an upstream's own markers stand in place of ours, and lets the
// caller be answered while the exchange goes on: what the guard writes after that goes nowhere.
type answerWriter struct {
	http.ResponseWriter
	foreign http.Header // the upstream's markers, set before the head is written
	body    *incoming   // of the request, where reading it in part ends the connection; else nil

	mu       sync.Mutex
	own      http.Header // set while the caller may be answered early: the guard's own header map
	begun    bool        // the guard's answer has begun
	detached bool
}

// Unwrap serves http.ResponseController, unless the writer can be taken from the guard.
func (a *answerWriter) Unwrap() http.ResponseWriter {
	if a.own != nil {
		return nil
	}
	return a.ResponseWriter
}

// Header is the header map of the guard.
func (a *answerWriter) Header() http.Header {
	if a.own != nil {
		return a.own
	}
	return a.ResponseWriter.Header()
}

// WriteHeader sends the head.
func (a *answerWriter) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.detached {
		return
	}
	if status >= 200 {
		a.begun = true
		if a.foreign != nil {
			h := a.Header()
			for _, name := range [...]string{"Idempotency-Status", "Idempotency-Expires", "Idempotent-Replayed"} {
				delete(h, name)
			}
			maps.Copy(h, a.foreign)
		}
	}
	a.sync()
	if status >= 200 && a.body.spoilt() {
		a.ResponseWriter.Header().Set("Connection", "close")
	}
	a.ResponseWriter.WriteHeader(status)
}

// sync copies the guard's headers to the connection's.
func (a *answerWriter) sync() {
	if a.own == nil {
		return
	}
	h := a.ResponseWriter.Header()
	clear(h)
	maps.Copy(h, a.own)
}

// Write sends a part of the body.
func (a *answerWriter) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.detached {
		return len(p), nil
	}
	if !a.begun {
		a.begun = true
		a.sync()
	}
	return a.ResponseWriter.Write(p)
}

// FlushError sends what is buffered.
func (a *answerWriter) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.detached {
		return nil
	}
	a.sync()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack is that of the connection, for requests that nothing is kept of.
func (a *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// finish copies trailers, which the guard sets after the body.
func (a *answerWriter) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil || a.detached {
		return
	}
	h := a.ResponseWriter.Header()
	for name, values := range a.own {
		if _, sent := h[name]; !sent || strings.HasPrefix(name, http.TrailerPrefix) {
			h[name] = values
		}
	}
}

// detach takes the connection from the guard; false: its answer has begun.
func (a *answerWriter) detach() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun {
		return false
	}
	a.detached = true
	return true
}

// waiting is an exchange that the caller waits for only so long.
type waiting struct {
	started chan *idempo.Claim // the exchange has begun, the body is read
	once    sync.Once
}

type waitingKey struct{}

// begin tells that the exchange has begun.
func begin(ctx context.Context, claim *idempo.Claim) {
	if w, ok := ctx.Value((*waitingKey)(nil)).(*waiting); ok {
		w.once.Do(func() { w.started <- claim })
	}
}

// serveWithin answers in_progress once the exchange has taken answer_within; the exchange goes on, and a retry collects
// its result.
func (rt *route) serveWithin(v *visit, r *http.Request, guard http.Handler) {
	v.w.own = v.w.ResponseWriter.Header().Clone()
	if v.w.own == nil {
		v.w.own = http.Header{}
	}
	wait := &waiting{started: make(chan *idempo.Claim, 1)}
	r = r.WithContext(context.WithValue(r.Context(), (*waitingKey)(nil), wait))
	done := make(chan any, 1)
	go func() { // Drain waits for it: the guard counts it as running
		defer func() { done <- recover() }()
		guard.ServeHTTP(v.w, r)
		v.w.finish()
	}()
	var claim *idempo.Claim
	select {
	case claim = <-wait.started:
	case p := <-done:
		rethrow(p)
		return
	}
	began := time.Now()
	timer := time.NewTimer(rt.config.AnswerWithin)
	defer timer.Stop()
	select {
	case p := <-done:
		rethrow(p)
		return
	case <-timer.C:
	}
	if !v.w.detach() {
		rethrow(<-done)
		return
	}
	p := idemhttp.NewProblem("in_progress")
	p.KeyRef = claim.Ref()
	p.RetryAfter = int(max(1, min(time.Since(began)/2/time.Second, 30)))
	v.w.ResponseWriter.Header().Set("Idempotency-Status", "in_progress")
	rt.g.writeProblem(v.w.ResponseWriter, r, p)
}

// rethrow carries a panic over to the request's own goroutine.
func rethrow(p any) {
	if p != nil {
		panic(p)
	}
}
