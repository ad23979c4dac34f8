package demo

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Headers by which a scene asks the service to have an accident. A real service has them unasked.
const (
	crashHeader    = "X-Demo-Crash"    // die after the first charge of this reference, before the answer
	togetherHeader = "X-Demo-Together" // be slow enough for a second click
)

// payments is a service as many are: it charges, and it does not know a repeated call from a new one.
type payments struct {
	ledger  *ledger
	crash   func()
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

func newPayments(path string, crash func()) *payments {
	return &payments{ledger: &ledger{path: path}, crash: crash, waiting: map[string]chan struct{}{}}
}

// ServeHTTP charges with POST, and lists the charges of a reference with GET /v1/payments?ref=.
func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path != "/v1/payments":
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPost:
		p.create(w, r)
	default:
		p.list(w, r.URL.Query().Get("ref"))
	}
}

func (p *payments) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Amount int64 `json:"amount"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil || json.Unmarshal(body, &in) != nil || in.Amount <= 0 {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error":"amount must be a positive number of cents"}`)
		return
	}
	ref := r.Header.Get("Idempotency-Key") // noted with the charge, as a caller's reference; not looked at
	if r.Header.Get(togetherHeader) != "" {
		p.together(ref)
	}
	c, err := p.ledger.charge(ref, in.Amount)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if r.Header.Get(crashHeader) != "" {
		if all, err := readLedger(p.ledger.path); err == nil && len(chargesOf(all, ref)) == 1 {
			p.crash()
		}
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(c)
}

// together holds the first call until a second one is there, or for as long as a person would notice.
func (p *payments) together(ref string) {
	p.mu.Lock()
	second, ok := p.waiting[ref]
	if ok {
		delete(p.waiting, ref)
		close(second)
		p.mu.Unlock()
		return
	}
	second = make(chan struct{})
	p.waiting[ref] = second
	p.mu.Unlock()
	t := time.NewTimer(300 * time.Millisecond)
	defer t.Stop()
	select {
	case <-second:
	case <-t.C:
		p.mu.Lock()
		delete(p.waiting, ref)
		p.mu.Unlock()
	}
}

func (p *payments) list(w http.ResponseWriter, ref string) {
	all, err := readLedger(p.ledger.path)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	items := chargesOf(all, ref)
	_ = json.NewEncoder(w).Encode(map[string]any{"count": len(items), "items": items})
}

// die ends the process as kill -9 would.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // the signal is on its way
}
