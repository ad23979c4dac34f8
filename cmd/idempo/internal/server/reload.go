package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/gateway"
)

// epoch is one configuration and the gateway that serves it. A request keeps the one it began with.
type epoch struct {
	settings *config.Settings
	gateway  *gateway.Gateway // nil: no routes
	requests sync.WaitGroup
}

// epochs hands requests to the newest epoch.
type epochs struct {
	mu   sync.RWMutex
	now  *epoch
	last error // why the last reload changed nothing; nil: it did, or there was none
}

func (e *epochs) current() *epoch {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.now
}

// ServeHTTP serves r by the epoch that is current when it comes.
func (e *epochs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.RLock()
	now := e.now
	now.requests.Add(1)
	e.mu.RUnlock()
	defer now.requests.Done()
	now.gateway.ServeHTTP(w, r)
}

func (e *epochs) swap(next *epoch) (old *epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old, e.now, e.last = e.now, next, nil
	return old
}

func (e *epochs) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = err
}

func (e *epochs) lastError() error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.last
}

// NotReloaded says why a reload changed nothing: Outcome is invalid (the configuration has faults) or refused (it has none, and
// parts of it take a restart).
type NotReloaded struct {
	Outcome string
	Err     error
}

// Error is the text of the cause, a line per fault.
func (n *NotReloaded) Error() string { return n.Err.Error() }

// Unwrap returns the cause.
func (n *NotReloaded) Unwrap() error { return n.Err }

// Reload reads the configuration again and serves new requests by it; those that run keep what they began with. It changes
// everything or, with *NotReloaded, nothing. Calls wait for one another.
func (s *Server) Reload() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	err := s.reload()
	outcome := "ok"
	if no, ok := errors.AsType[*NotReloaded](err); ok {
		outcome = no.Outcome
	}
	s.metrics.CountReload(outcome)
	if err != nil {
		s.serving.failed(err)
		for line := range strings.SplitSeq(err.Error(), "\n") {
			s.log.Error("configuration not taken over; the old one stays", "outcome", outcome, "problem", line)
		}
		return err
	}
	s.log.Info("configuration taken over", "file", s.serving.current().settings.File, "config_digest", digest(s.serving.current().settings))
	return nil
}

func (s *Server) reload() error {
	if s.options.Load == nil {
		return &NotReloaded{"refused", errors.New("this process has no configuration to read again")}
	}
	c, warnings, err := s.options.Load()
	if err != nil {
		return &NotReloaded{"invalid", err}
	}
	old := s.serving.current()
	if err := fixedParts(old.settings, c); err != nil {
		return &NotReloaded{"refused", err}
	}
	var next *gateway.Gateway
	if old.gateway != nil {
		next, err = old.gateway.Next(s.watched(c.Gateway))
	}
	if err != nil {
		if _, fixed := errors.AsType[*gateway.FieldError](err); fixed {
			return &NotReloaded{"refused", err}
		}
		return &NotReloaded{"invalid", err}
	}
	for _, w := range warnings {
		s.log.Warn("configuration", "warning", w.String())
	}
	s.level.Set(c.Log.Level)
	s.admin.use(c)
	s.retire(s.serving.swap(&epoch{settings: c, gateway: next}))
	return nil
}

// retire closes an epoch once its requests are answered and its runs, also those whose caller is gone, are settled.
func (s *Server) retire(old *epoch) {
	s.work.Go(func() {
		old.requests.Wait()
		if old.gateway != nil {
			old.gateway.Drain(s.life)
			old.gateway.Close()
		}
	})
}

// fixedParts names the parts that differ and take a restart. What a gateway may not change it says itself.
func fixedParts(a, b *config.Settings) error {
	var parts []string
	for _, path := range config.Changed(a, b) {
		names := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })
		switch {
		case path == "upstream", path == "metrics.token", path == "log.level", slices.Contains([]string{"gateway", "ready", "shutdown"}, names[0]):
			continue
		case names[0] != "webhooks" && names[0] != "relays":
			names = names[:min(len(names), 2)]
		default:
			names = names[:1]
		}
		if part := strings.Join(names, "."); !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if len(a.Gateway.Routes) == 0 != (len(b.Gateway.Routes) == 0) {
		parts = append(parts, "gateway.routes (the first, or the last)")
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("these parts take a restart: %s", strings.Join(parts, ", "))
}

// watch reloads when the content of the file is no longer what was seen, whatever happened to its name, until ctx ends.
func (s *Server) watch(ctx context.Context, file, seen string) {
	every := s.options.WatchEvery
	if every == 0 {
		every = 5 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := content(file); now != seen && now != "" {
			seen = now
			_ = s.Reload() // said in the log, the metric and /readyz
		}
	}
}

// content tells two contents of a file apart; "" where it cannot be read, as between the two steps of a swap.
func content(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// watched is a gateway's configuration with where it says what happens.
func (s *Server) watched(g gateway.Config) gateway.Config {
	g.Log = s.log
	g.Observe = func(ev gateway.Event) {
		s.metrics.ObserveGateway(ev)
		gatewayLog(s.log, ev)
	}
	return g
}

func levelOf(c config.Log) *slog.LevelVar {
	l := new(slog.LevelVar)
	l.Set(c.Level)
	return l
}
