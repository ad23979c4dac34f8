package crashtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
)

// Ledger is a far side that services call: an HTTP server in the test's own process, which no crash reaches. It counts
// what it is asked to do and what it does. Calls that carry a key are done once for each key, and answered again.
type Ledger struct {
	server *http.Server
	url    string
	wg     sync.WaitGroup

	mu      sync.Mutex
	intents map[string]*intent
	holds   map[string]*hold
}

// hold keeps the answers of one intent back.
type hold struct {
	arrived chan struct{}
	once    sync.Once
	release chan struct{}
}

// intent is what the ledger knows of one thing that somebody wants done once.
type intent struct {
	keys    []string // of each call, "" where it had none
	effects []string // the content of each call that was done
}

type call struct {
	Intent  string `json:"intent"`
	Key     string `json:"key,omitempty"`
	Content string `json:"content"`
}

// OpenLedger starts a ledger on a port of its own.
func OpenLedger() (*Ledger, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &Ledger{url: "http://" + ln.Addr().String() + "/effects", intents: map[string]*intent{}, holds: map[string]*hold{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects", l.post)
	mux.HandleFunc("GET /effects", l.get)
	l.server = &http.Server{Handler: mux}
	l.wg.Go(func() { _ = l.server.Serve(ln) })
	return l, nil
}

// Close stops the ledger.
func (l *Ledger) Close() error {
	err := l.server.Close()
	l.wg.Wait()
	return err
}

// URL is where services reach it; see LedgerClient.
func (l *Ledger) URL() string { return l.url }

// Calls returns the keys that calls for an intent carried, in order.
func (l *Ledger) Calls(name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at(name).keys)
}

// Effects returns what was done for an intent, in order.
func (l *Ledger) Effects(name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at(name).effects)
}

// Hold keeps back the answers to calls and questions for an intent until release is called. arrived is closed when the
// first is there; what it asks for has been done then.
func (l *Ledger) Hold(name string) (arrived <-chan struct{}, release func()) {
	h := &hold{arrived: make(chan struct{}), release: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[name] = h
	return h.arrived, sync.OnceFunc(func() { close(h.release) })
}

// held waits while the answers of an intent are kept back, or until the caller leaves.
func (l *Ledger) held(r *http.Request, name string) {
	l.mu.Lock()
	h := l.holds[name]
	l.mu.Unlock()
	if h == nil {
		return
	}
	h.once.Do(func() { close(h.arrived) })
	select {
	case <-h.release:
	case <-r.Context().Done():
	}
}

// at returns the entry of an intent. l is locked.
func (l *Ledger) at(name string) *intent {
	if l.intents[name] == nil {
		l.intents[name] = &intent{}
	}
	return l.intents[name]
}

func (l *Ledger) post(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	i := l.at(c.Intent)
	seen := c.Key != "" && slices.Contains(i.keys, c.Key)
	i.keys = append(i.keys, c.Key)
	if !seen {
		i.effects = append(i.effects, c.Content)
	}
	content := c.Content
	if seen {
		content = i.effects[0]
	}
	l.mu.Unlock()
	l.held(r, c.Intent)
	_, _ = io.WriteString(w, content)
}

func (l *Ledger) get(w http.ResponseWriter, r *http.Request) {
	l.held(r, r.FormValue("intent"))
	done := l.Effects(r.FormValue("intent"))
	if len(done) == 0 {
		http.Error(w, "nothing was done", http.StatusNotFound)
		return
	}
	_, _ = io.WriteString(w, done[0])
}

// LedgerClient calls a ledger from a service.
type LedgerClient struct {
	URL    string
	Client http.Client
}

// Do has content done for an intent and returns what was done: with a key that the ledger knows, what was done first.
func (c *LedgerClient) Do(ctx context.Context, intent, key, content string) (string, error) {
	text, err := json.Marshal(call{intent, key, content})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	req.GetBody = nil // a call is sent once, or not at all
	done, status, err := c.send(req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("ledger: status %d: %s", status, done)
	}
	return done, err
}

// Find returns what was done for an intent, and whether anything was.
func (c *LedgerClient) Find(ctx context.Context, intent string) (done string, ok bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"?intent="+url.QueryEscape(intent), nil)
	if err != nil {
		return "", false, err
	}
	done, status, err := c.send(req)
	switch {
	case err != nil:
		return "", false, err
	case status == http.StatusNotFound:
		return "", false, nil
	case status != http.StatusOK:
		return "", false, fmt.Errorf("ledger: status %d: %s", status, done)
	}
	return done, true, nil
}

func (c *LedgerClient) send(req *http.Request) (string, int, error) {
	resp, err := c.Client.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("ledger: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), resp.StatusCode, err
}
