package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

// Inbox handles the messages of one subscriber. It is safe for concurrent use; any number of processes may have one of
// the same name, with the same settings.
type Inbox struct {
	engine *idempo.Engine
	store  Store
	o      Options
	lanes  laneLocks
	lag    lags
	wake   chan struct{} // something may be due

	mu         sync.Mutex
	registered bool
	parked     int // in a row, for identity or parsing
	why        string
	spared     map[string]bool // counted starts that did not happen and could not be uncounted
	warned     time.Time       // when the short window was last warned of
}

// New returns the inbox of o.Subscriber over the engine's store, which must keep receipts (Opener) and, for the atomic
// guard, have transactions. It declares the operation "inbox:" + Subscriber. The error lists every mistake; it matches
// ErrWindow where Horizon is longer than the window. New sends nothing.
func New(engine *idempo.Engine, o Options) (*Inbox, error) {
	errs := o.check()
	o = o.withDefaults()
	opener, ok := engine.Store().(Opener)
	if !ok {
		errs = append(errs, errors.New("inbox: the store keeps no receipts: use postgres, mysql, sqlite or memstore"))
	}
	if _, ok := engine.Store().(idempo.Transactor); !ok {
		errs = append(errs, errors.New("inbox: the store has no transactions"))
	}
	in := &Inbox{engine: engine, o: o, wake: make(chan struct{}, 1), spared: map[string]bool{}}
	in.lanes.init()
	if err := in.CheckHorizon("the broker", o.Horizon); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, engine.Declare(o.operation()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	in.store = sealing{opener.Inbox(), engine}
	return in, nil
}

// Options returns the settings with their defaults, for adapters.
func (in *Inbox) Options() Options { return in.o }

// CheckHorizon compares how long a broker may redeliver with how long the inbox remembers. Adapters call it with what they
// asked their broker. It returns ErrWindow where the horizon is longer, and only warns with AllowShortWindow, or where
// the horizon is unlimited (idempo.Forever) or not known (0).
func (in *Inbox) CheckHorizon(what string, horizon time.Duration) error {
	window := in.Window()
	switch {
	case window == idempo.Forever:
		return nil
	case horizon == 0 || horizon == idempo.Forever:
		if in.o.Horizon == 0 || in.o.Horizon == idempo.Forever {
			in.o.Logger.Warn("inbox: how long the broker may redeliver is not known; a copy that is older than the window would run again, unless it is parked as too_old",
				"subscriber", in.o.Subscriber, "window", window.String())
		}
		return nil
	case horizon <= window:
		return nil
	case in.o.AllowShortWindow:
		in.warnWindow(horizon)
		return nil
	}
	return fmt.Errorf("%w: inbox %s remembers %v, %s redelivers for %v: raise Retention or Tombstone, or set AllowShortWindow",
		ErrWindow, in.o.Subscriber, window, what, horizon)
}

// Headroom is how much longer the inbox remembers than its broker redelivers, negative with AllowShortWindow; false:
// Horizon is not stated, or a side has no limit.
func (in *Inbox) Headroom() (time.Duration, bool) {
	if h, w := in.o.Horizon, in.Window(); h != 0 && h != idempo.Forever && w != idempo.Forever {
		return w - h, true
	}
	return 0, false
}

// warnWindow warns once an hour.
func (in *Inbox) warnWindow(horizon time.Duration) {
	in.mu.Lock()
	due := time.Since(in.warned) >= time.Hour
	if due {
		in.warned = time.Now()
	}
	in.mu.Unlock()
	if due {
		in.o.Logger.Warn("inbox: the window is shorter than the broker's horizon; late copies can run again",
			"subscriber", in.o.Subscriber, "window", in.Window().String(), "horizon", horizon.String())
	}
}

// Handle makes the message have its effect once, by h, and says whether it may be acknowledged. On an error nothing is
// decided: do not acknowledge, deliver it again later. The error is ErrBreaker once the inbox has stopped itself, the
// context's, or one of the store (idempo.ErrUnavailable: it may be away).
//
// Messages of one lane that are handled by this Inbox at once follow each other in the order of their calls. A message
// of a lane that another process works on is StatusRunning.
func (in *Inbox) Handle(ctx context.Context, m Message, h Handler) (Outcome, error) {
	if in.o.Guard != idempo.GuardAtomic {
		return Outcome{}, misuse("Handle needs the atomic guard; this inbox is leased: call HandleLeased")
	}
	return in.handle(ctx, m, h)
}

// HandleInPlace is Handle for a caller whose broker redelivers what fails: a failing message is not stored for Work but
// stays where it is, StatusRetrying without Ack and with the handler's error in Outcome.Err; its starts are counted, and
// after MaxAttempts of them it is dead, with Ack. RetryIn says when the redelivery should come. What waits for its lane
// or for its time is stored for Work here too.
func (in *Inbox) HandleInPlace(ctx context.Context, m Message, h Handler) (Outcome, error) {
	if in.o.Guard != idempo.GuardAtomic {
		return Outcome{}, misuse("HandleInPlace needs the atomic guard; this inbox is leased: call HandleLeased")
	}
	return in.handleAs(ctx, m, h, true)
}

func (in *Inbox) handle(ctx context.Context, m Message, h Handler) (Outcome, error) {
	return in.handleAs(ctx, m, h, false)
}

func (in *Inbox) handleAs(ctx context.Context, m Message, h Handler, inPlace bool) (Outcome, error) {
	if err := in.ready(ctx); err != nil {
		return Outcome{}, err
	}
	d, p := in.accept(m, false)
	if p != nil {
		return in.park(ctx, d, p)
	}
	in.identified()
	d.inPlace = inPlace
	return in.deliver(ctx, d, h)
}

// deliver handles an identified message in the turn of its lane.
func (in *Inbox) deliver(ctx context.Context, d *delivery, h Handler) (out Outcome, err error) {
	defer func() { out.started = d.run }()
	if d.order != OrderNone {
		leave, err := in.lanes.enter(ctx, laneOf(d))
		if err != nil {
			return Outcome{}, err
		}
		defer leave()
	}
	if d.m.Attempt != 1 && !d.counted {
		if out, done, err := in.count(ctx, d); done || err != nil {
			return out, err
		}
	}
	if in.o.Guard == idempo.GuardLeased {
		return in.lease(ctx, d, h)
	}
	return in.attempt(ctx, d, h)
}

// attempt is one start of the handler in its transaction, and what follows from it.
func (in *Inbox) attempt(ctx context.Context, d *delivery, h Handler) (Outcome, error) {
	for range 3 {
		out, again, err := in.settle(ctx, d, in.transact(ctx, []*delivery{d}, h))
		if !again {
			return out, err
		}
	}
	return Outcome{Status: StatusRunning, RetryIn: time.Second}, in.uncount(ctx, d)
}

// ready refuses work of a stopped inbox, and makes sure, once, that the store knows since when the subscriber is there.
func (in *Inbox) ready(ctx context.Context) error {
	in.mu.Lock()
	stopped, why, registered := in.parked >= in.o.ParkBreaker, in.why, in.registered
	in.mu.Unlock()
	switch {
	case stopped:
		return fmt.Errorf("%w: stopped: %d messages in a row parked for %s, nothing more acknowledged: set MissingID to %s or %s, or have the producer send ids",
			ErrBreaker, in.o.ParkBreaker, why, MissingDigest, MissingPosition)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case registered:
		if in.o.AllowShortWindow && in.o.Horizon > in.Window() && in.o.Horizon != idempo.Forever {
			in.warnWindow(in.o.Horizon)
		}
		return nil
	}
	if err := in.store.Leave(ctx, LeaveParams{Subscriber: in.o.Subscriber}); err != nil {
		return err
	}
	in.mu.Lock()
	in.registered = true
	in.mu.Unlock()
	return nil
}

// identified ends a row of parked messages.
func (in *Inbox) identified() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.parked < in.o.ParkBreaker {
		in.parked = 0
	}
}

// park stores a message that cannot be started.
func (in *Inbox) park(ctx context.Context, d *delivery, p *parking) (Outcome, error) {
	out, err := in.keepParked(ctx, d, d.rkey, p)
	if err != nil {
		return Outcome{}, err
	}
	in.mu.Lock()
	in.parked++
	in.why = p.reason
	stopped := in.parked == in.o.ParkBreaker
	in.mu.Unlock()
	if stopped {
		in.o.Logger.Error("inbox: stopped itself; nothing more is acknowledged", "subscriber", in.o.Subscriber, "parked", in.o.ParkBreaker, "reason", p.reason)
	}
	return out, nil
}

// keepParked writes the receipt of a parked message.
func (in *Inbox) keepParked(ctx context.Context, d *delivery, key string, p *parking) (Outcome, error) {
	r := Receipt{Subscriber: in.o.Subscriber, Key: key, Message: d.kept, Status: StatusParked, Reason: p.reason}
	rev := int64(0)
	if d.receipt != nil {
		r, rev = d.receipt.clone(), d.receipt.Rev
		r.Status, r.Reason, r.Holds = StatusParked, p.reason, p.reason == ReasonGap || p.reason == ReasonUnreadable && r.Holds
		if !d.counted {
			r.Attempts = d.receipt.Attempts
		} else {
			r.Attempts--
		}
	}
	r.Failures = append(r.Failures, Failure{At: d.ent.Now, Error: p.text})
	if _, err := in.store.Put(ctx, PutParams{Receipt: r, Rev: rev}); err != nil {
		return Outcome{}, err
	}
	in.o.Logger.Warn("inbox: parked a message", "subscriber", in.o.Subscriber, "reason", p.reason)
	return Outcome{Status: StatusParked, Reason: p.reason, Ack: true}, nil
}

// nudge tells Work that something may be due.
func (in *Inbox) nudge() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func misuse(hint string) error { return &idempo.Error{Op: "inbox", Code: "misuse", Hint: hint} }
