package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/safedial"
)

// Config of a [Receiver]. Zero values mean the defaults, negative ones are refused.
type Config struct {
	// Engine over the application's own database. Required; its store must keep receipts and have transactions.
	Engine *idempo.Engine
	// Sources are the endpoints.
	Sources []Source
	// Providers are profiles of one's own, besides the built-in ones.
	Providers []Profile
	// MaxInFlight is how many requests are worked on at once, once their body is there; more are answered 503. Default 512.
	MaxInFlight int
	// MaxBuffered is how many bytes of bodies are held at once; more are answered 503. Default 64 MiB.
	MaxBuffered int64
	// ReadTimeout is how long a body may take; then 408. Default 10s.
	ReadTimeout time.Duration
	// AnswerBudget is how long storing may take; then 503. Default 2s.
	AnswerBudget time.Duration
	// RespondBudget is how long the first answer to an interaction of a chat may take, from its arrival. Default 2.5s.
	RespondBudget time.Duration
	// Workers run events, for each source. Default 8.
	Workers int
	// Lease is how long an event waits that a vanished worker had; a worker that works for longer is fenced off. Default 30s.
	Lease time.Duration
	// Refresh is how often secrets are read again. Default 5s.
	Refresh time.Duration
	// Observer hears of every answered request. Optional.
	Observer Observer
	Logger   *slog.Logger     // nil: no logging
	Now      func() time.Time // the receiver's clock, for tests; nil: time.Now
}

// Observer hears of requests.
type Observer interface {
	// Observe is called once for each answered request, after the answer is decided. It must be quick.
	Observe(ctx context.Context, o Observation)
}

// Observation is one answered request. It holds no id, key, body or secret.
type Observation struct {
	Source  string // "" where there is none of that name
	Outcome string // stored duplicate late_duplicate conflict suspect_replay handshake refused too_large store_error overload other
	Reason  Reason // of a refusal
	Secret  string // the secret that verified
	Status  int
	Took    time.Duration
}

// HandlerFunc does the work of one event, in the transaction that its context carries (postgres.Tx, sqlite.Tx, …). nil commits
// effect and "handled" together; an error rolls back and is tried again; inbox.Permanent, inbox.Skip and inbox.Later say more.
type HandlerFunc func(ctx context.Context, ev *Event) error

// Receiver takes webhooks: it verifies a request, stores its events with the keys that tell a repetition, answers, and
// runs each event once. It is an http.Handler and safe for concurrent use.
type Receiver struct {
	cfg      Config
	sources  map[string]*endpoint
	slots    chan struct{}
	buffered atomic.Int64
	closing  atomic.Bool
	confirm  *http.Client
}

// endpoint is one source with what it needs to receive.
type endpoint struct {
	v         *Verifier
	in        *inbox.Inbox
	operation string
	tenant    string

	again    sightings
	mu       sync.RWMutex
	handlers map[string]HandlerFunc // by type; "*" takes the rest
	respond  RespondFunc            // answers interactions
	refetch  HandlerFunc            // loads what is true
	target   *target                // nil: handlers
	greeted  bucket
}

// New checks a configuration, reads the secrets, and declares one operation and one inbox for each source. The error joins
// every [Fault] of every source. It sends nothing.
func New(c Config) (*Receiver, error) {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 512)
	c.MaxBuffered = cmp.Or(c.MaxBuffered, 64<<20)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 10*time.Second)
	c.AnswerBudget = cmp.Or(c.AnswerBudget, 2*time.Second)
	c.RespondBudget = cmp.Or(c.RespondBudget, 2500*time.Millisecond)
	c.Workers = cmp.Or(c.Workers, 8)
	c.Refresh = cmp.Or(c.Refresh, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	var errs []error
	if c.Engine == nil {
		errs = append(errs, errors.New("webhook: Config.Engine is required"))
	}
	if c.Lease < 0 || c.RespondBudget < 0 || c.MaxInFlight < 0 || c.MaxBuffered < 0 || c.ReadTimeout < 0 || c.AnswerBudget < 0 || c.Workers < 0 || c.Refresh < 0 {
		errs = append(errs, errors.New("webhook: a limit of Config is negative"))
	}
	r := &Receiver{cfg: c, sources: map[string]*endpoint{}, confirm: safedial.NewClient(safedial.Options{Timeout: certTimeout})}
	for _, s := range c.Sources {
		v, err := NewVerifier(s, c.Providers...)
		if err == nil && r.sources[s.Name] != nil {
			err = &Fault{s.Name, "name", "is given twice", "name each source once"}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.sources[s.Name] = &endpoint{v: v, handlers: map[string]HandlerFunc{}, operation: "webhook:" + s.Name, tenant: cmp.Or(s.Tenant, "default")}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.slots = make(chan struct{}, c.MaxInFlight)
	for _, e := range r.sources {
		errs = append(errs, r.open(e))
	}
	return r, errors.Join(errs...)
}

const bodyRetention = 30 * 24 * time.Hour

// open declares what a source needs of engine and inbox.
func (r *Receiver) open(e *endpoint) error {
	p, s := e.v.Profile(), e.v.Source()
	for _, w := range e.v.Warnings() {
		r.cfg.Logger.Warn("webhook: " + w)
	}
	err := r.cfg.Engine.Declare(idempo.Operation{Name: e.operation, Guard: idempo.GuardAtomic, Retention: p.Retention, Tombstone: 10 * p.Retention})
	if err == nil && (p.Handshake == HandshakeSlack || p.Handshake == HandshakeDiscord) {
		err = r.cfg.Engine.Declare(idempo.Operation{Name: e.answerOf(), Guard: idempo.GuardAtomic, Retention: p.Retention, Tombstone: p.Retention})
	}
	if err != nil {
		return fmt.Errorf("webhook %s: %w", s.Name, err)
	}
	o := inbox.Options{Lease: r.cfg.Lease, Subscriber: e.operation, Tenant: e.tenant, MaxAge: cmp.Or(s.Retry.MaxAge, 24*time.Hour),
		MaxAttempts: cmp.Or(s.Retry.Attempts, 12), BackoffBase: cmp.Or(s.Retry.First, time.Second), BackoffMax: cmp.Or(s.Retry.Max, 2*time.Hour),
		Retention: p.Retention, Tombstone: 10 * p.Retention, TooOld: inbox.TooOldRun, KeepDone: p.Retention,
		KeepBody: min(cmp.Or(s.BodyRetention, bodyRetention), p.Retention), Workers: r.cfg.Workers, Logger: r.cfg.Logger}
	s.Order.into(&o)
	if s.Forward != nil {
		o.Guard, o.OnCrash = idempo.GuardLeased, idempo.OnCrashHold
		if *s.Forward.TargetDedups {
			o.OnCrash, o.DownstreamHonoursKey = idempo.OnCrashRerun, true
		}
		alarm := func(text string) { r.cfg.Logger.Error("webhook: "+text, "source", s.Name) }
		if e.target, err = newTarget(&s, r.cfg.Now, alarm); err != nil {
			return err
		}
	}
	if e.in, err = inbox.New(r.cfg.Engine, o); err != nil {
		return fmt.Errorf("webhook %s: %w", s.Name, err)
	}
	if e.target != nil {
		e.target.in = e.in
	}
	return nil
}

// Handle sets what is done with events of a source and a type; "*" takes every type that has no handler of its own. An
// event that has none is skipped. Handle panics where the source is not configured, like http.ServeMux does for a pattern
// that is none.
func (r *Receiver) Handle(source, kind string, h HandlerFunc) {
	e := r.sources[source]
	if e == nil || h == nil || e.target != nil {
		panic(fmt.Sprintf("webhook: Handle needs a handler, and a source that is configured and does not forward; %q is none", source))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handlers[kind] = h
}

// Resting tells whether the target of a source fails so often that nothing is sent for a while.
func (r *Receiver) Resting(source string) bool {
	e := r.sources[source]
	return e != nil && e.target != nil && e.target.breaker.resting()
}

// Inbox is where the events of a source wait, for operators: inbox.Inbox.Find, Retry, Release and Discard. nil: there is
// no such source.
func (r *Receiver) Inbox(source string) *inbox.Inbox {
	if e := r.sources[source]; e != nil {
		return e.in
	}
	return nil
}

// Run runs stored events and reads the secrets again, until ctx ends. Then new requests are answered 503, what runs has
// the inbox's time to drain, and Run returns. Any number of processes may run it.
func (r *Receiver) Run(ctx context.Context) error {
	var group sync.WaitGroup
	errs := make(chan error, len(r.sources))
	for _, e := range r.sources {
		if err := e.hooked(); err != nil {
			return err
		}
	}
	for _, e := range r.sources {
		if e.v.source.Hold {
			continue
		}
		group.Go(func() { errs <- e.in.Work(ctx, e.handler()) })
	}
	group.Go(func() { r.refresh(ctx) })
	group.Go(func() { r.noting(ctx) })
	<-ctx.Done()
	r.closing.Store(true)
	group.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// refresh reads changed secrets. One that cannot be read keeps its old text.
func (r *Receiver) refresh(ctx context.Context) {
	t := time.NewTicker(r.cfg.Refresh)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for name, e := range r.sources {
			if err := e.v.Refresh(); err != nil {
				r.cfg.Logger.Error("webhook: secrets could not be read again; the old ones stay", "source", name, "error", err)
			}
		}
	}
}

// bucket lets ten through per second.
type bucket struct {
	mu   sync.Mutex
	from time.Time
	n    int
}

const greetings = 10

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.from) >= time.Second || now.Before(b.from) {
		b.from, b.n = now, 0
	}
	b.n++
	return b.n <= greetings
}
