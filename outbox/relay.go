package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/backoff"
)

// Relay publishes the events of one group. Any number of relays of a group share its partitions by lease. One Run at a
// time; Status may be called from anywhere.
type Relay struct {
	store  Store
	desk   Desk
	pub    Publisher
	o      RelayOptions
	all    bool          // every topic is the group's
	order  bool          // the publisher keeps order by itself
	window time.Duration // of the broker's dedup
	dest   func(topic string) string

	mu      sync.Mutex
	running bool
	status  RelayState
	beat    time.Time // when the loop last turned
}

// NewRelay returns a relay from a store that keeps an outbox (Opener) to pub. The error lists every mistake. It sends
// nothing.
func NewRelay(store idempo.Store, pub Publisher, o RelayOptions) (*Relay, error) {
	o = o.withDefaults()
	errs := o.check()
	s, ok := store.(Opener)
	if !ok {
		errs = append(errs, errors.New("outbox: the store keeps no outbox: use postgres, mysql, sqlite or memstore"))
	}
	if pub == nil {
		errs = append(errs, errors.New("outbox: a relay needs a publisher"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	log, desk := s.Outbox()
	r := &Relay{store: log, desk: desk, pub: pub, o: o, all: len(o.Topics) == 1 && o.Topics[0] == "*", dest: func(string) string { return "" }}
	d, several := pub.(Destiner)
	if several {
		r.dest = d.Destination
	}
	if k, ok := pub.(Orderer); ok && !several { // what goes to several places is in nobody's order
		r.order = k.KeepsOrder()
	}
	if w, ok := pub.(Windower); ok {
		r.window = w.DedupWindow()
	}
	r.status.State = RelayStopped
	return r, nil
}

// Options returns the settings with their defaults.
func (r *Relay) Options() RelayOptions { return r.o }

// Run publishes until ctx ends. Then it sends nothing new, waits up to DrainTimeout for answers, stores how far it came,
// gives its partitions up, and returns nil. While store or destination are away it asks again, with full jitter.
//
// It returns an error at once where going on would be wrong: ErrForeignDatabase, ErrEnvironment, ErrFrom, ErrGroup. Then
// nothing was published by this call, or it has drained as above.
func (r *Relay) Run(ctx context.Context) error {
	_, err := r.run(ctx, false)
	return err
}

// Once publishes what was committed before the call, as far as it is not a living relay's, and returns what is left for
// later or for a person. It waits for a destination that is away until ctx ends, and then returns ctx's error. ErrStandby,
// or an error that matches idempo.ErrUnavailable: the store could not be asked.
func (r *Relay) Once(ctx context.Context) (Left, error) { return r.run(ctx, true) }

// Left is what Once could not publish.
type Left struct{ Waiting, Dead int64 }

func (r *Relay) run(ctx context.Context, once bool) (Left, error) {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return Left{}, &idempo.Error{Op: "relay", Code: "misuse", Hint: "this relay runs already; make another one"}
	}
	r.running = true
	r.mu.Unlock()
	x := newRun(r, ctx, once)
	err := x.loop()
	x.close()
	r.mu.Lock()
	r.running, r.status = false, RelayState{State: RelayStopped, Owner: r.o.Owner, Group: r.o.Group}
	r.mu.Unlock()
	if err != nil || !once {
		return Left{}, err
	}
	if ctx.Err() != nil && !x.drained {
		return Left{}, context.Cause(ctx)
	}
	return x.left()
}

// run is one Run: the state of its loop, which no other goroutine touches, but answers.
type run struct {
	*Relay
	ctx  context.Context
	once bool

	sendCtx  context.Context // of the publisher
	stopSend context.CancelFunc
	batches  chan batch // to the sender, which is busy until it takes from it again
	sending  sync.WaitGroup
	sender   bool // busy
	freed    chan struct{}
	answers  answers
	rung     <-chan struct{}
	deaf     func()

	// What is held.
	parts              map[int]*part
	want, total        int
	rank, relays       int
	until              time.Time // of the leases, by this clock, counted from before the call
	epoch              int64
	paused             bool
	pausedTopics       []string
	environment        string
	warnedEnvironment  bool
	nextHold, nextRead time.Time
	nextTake, nextMove time.Time
	nextKeep, nextTell time.Time
	pause              time.Duration // between reads of an idle log
	caughtUp           bool          // the last read found nothing more
	away               time.Time     // the store is not asked before
	failures           int           // of the store, in a row
	stopping           bool
	stopBy             time.Time
	drained            bool
	storeErr           error
	standby            bool
	fatal              error // why it stopped by itself
	// What is on its way.
	chains        map[chainKey]*chain
	dests         map[string]*dest
	unsent        int // items in memory that are to be sent
	unsentBytes   int
	flying        int
	flyingBytes   int
	slots         int // places of the prefix that are kept
	sent          []sentRef
	solo          []*item // to be sent with nothing else in flight
	gentle        bool    // take one at a time: a start of another had no outcome
	settings      []pending
	settingsBytes int
	dirty         bool // there is a Move to make
	progress      time.Time
	told          time.Time // when Status was last brought up to date
	stalled       bool
	noRoute       map[string]time.Time // topics, since when
	warnedWindow  bool
}

func newRun(r *Relay, ctx context.Context, once bool) *run {
	now := time.Now()
	x := &run{Relay: r, ctx: ctx, once: once, batches: make(chan batch), freed: make(chan struct{}, 1), parts: map[int]*part{}, chains: map[chainKey]*chain{},
		dests: map[string]*dest{}, pause: r.o.MinPoll, nextHold: now, nextRead: now, nextTake: now, nextKeep: now.Add(backoff.Around(time.Minute, 0.5)),
		nextTell: now.Add(backoff.Around(5*time.Second, 0.5)), progress: now, noRoute: map[string]time.Time{}}
	x.answers.signal = make(chan struct{}, 1)
	x.sendCtx, x.stopSend = context.WithCancel(context.WithoutCancel(ctx))
	x.sending.Go(x.send)
	x.deaf = func() {}
	if b, ok := r.store.(Beller); ok {
		x.rung, x.deaf = b.Bell().Listen()
	}
	if l, ok := r.store.(Listener); ok && x.rung != nil {
		x.sending.Go(func() { x.listen(l) })
	}
	return x
}

// listen passes signals of other processes on, until the run ends.
func (x *run) listen(l Listener) {
	bell := x.store.(Beller).Bell()
	for n := 0; x.sendCtx.Err() == nil; n++ {
		if err := l.Listen(x.sendCtx, bell.Ring); err == nil {
			n = 0
		}
		sleep(x.sendCtx, backoff.Full(n, time.Second, 30*time.Second))
	}
}

// close ends what the run has started.
func (x *run) close() {
	x.answers.close()
	x.stopSend()
	close(x.batches)
	x.deaf()
	over := make(chan struct{})
	go func() { x.sending.Wait(); close(over) }()
	t := time.NewTimer(x.o.DrainTimeout)
	defer t.Stop()
	select {
	case <-over:
	case <-t.C:
		x.o.Logger.Error("outbox: the publisher did not return from Publish after its context had ended", "group", x.o.Group)
	}
}

// loop turns until the run is over.
func (x *run) loop() error {
	for {
		now := time.Now()
		if x.ctx.Err() != nil {
			x.stop(now)
		}
		x.settleAnswers(now)
		x.expire(now)
		x.giveUp(now)
		if err := x.keepUp(now); err != nil {
			if !fatal(err) {
				x.storeFailed(now, err)
			} else if len(x.parts) == 0 {
				return err
			} else { // ours till now: what is on its way is drained
				x.stop(now)
				x.fatal = err
			}
			if x.once && len(x.parts) == 0 && x.failures > 3 {
				return err
			}
		}
		x.dispatch(time.Now())
		if x.over(time.Now()) {
			x.finish()
			return x.fatal
		}
		x.tell()
		x.wait(time.Until(x.next(time.Now())))
	}
}

// keepUp does what is due with the store.
func (x *run) keepUp(now time.Time) error {
	if now.Before(x.away) {
		return nil
	}
	for _, step := range []func(time.Time) error{x.hold, x.move, x.take, x.read, x.keep} {
		if err := step(now); err != nil {
			return err
		}
	}
	x.failures, x.storeErr, x.standby = 0, nil, false
	return nil
}

// storeFailed waits for the store with full jitter.
func (x *run) storeFailed(now time.Time, err error) {
	x.storeErr, x.standby = err, errors.Is(err, ErrStandby)
	limit := 5 * time.Second
	if x.standby {
		limit = time.Second
	}
	if x.failures == 0 {
		x.o.Logger.Warn("outbox: the store does not answer as it should; asking again", "group", x.o.Group, "error", err)
	}
	x.failures++
	x.away = now.Add(backoff.Full(x.failures, 50*time.Millisecond, limit) + time.Millisecond)
}

// fatal reports whether asking again cannot help.
func fatal(err error) bool {
	return errors.Is(err, ErrForeignDatabase) || errors.Is(err, ErrEnvironment) || errors.Is(err, ErrFrom) || errors.Is(err, ErrGroup)
}

// call runs one call of the store, detached from the end of Run and bounded by StatementTimeout.
func (x *run) call(op string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), x.o.StatementTimeout)
	defer cancel()
	start := time.Now()
	err := f(ctx)
	observe(x.ctx, x.o.Observer, Observation{Kind: "store", Group: x.o.Group, Op: op, Took: time.Since(start), Err: err})
	if err != nil {
		err = fmt.Errorf("relay %s: %s: %w", x.o.Group, op, err)
	}
	return err
}

// stop begins the end.
func (x *run) stop(now time.Time) {
	if x.stopping {
		return
	}
	x.stopping, x.stopBy = true, now.Add(x.o.DrainTimeout)
	for _, p := range x.parts {
		x.leave(p, x.stopBy)
	}
}

// over reports whether nothing is left to wait for.
func (x *run) over(now time.Time) bool {
	if x.once && !x.stopping && x.caughtUp && len(x.parts) == x.want && x.unsent == 0 && x.flying == 0 && x.slots == 0 && !x.dirty && len(x.solo) == 0 &&
		x.nextTake.After(now) && x.nextHold.After(now) {
		x.drained = true
		return true
	}
	if !x.stopping {
		return false
	}
	return x.flying == 0 && !x.sender && !x.sendable(now) || now.After(x.stopBy)
}

// finish stores how far it came and gives everything up. The store may be away: then the leases lapse by themselves.
func (x *run) finish() {
	now := time.Now()
	x.settleAnswers(now)
	x.away, x.nextMove, x.dirty = time.Time{}, time.Time{}, true
	if err := x.move(now); err != nil {
		x.o.Logger.Warn("outbox: stopped without storing how far it came; what was published since goes out again, with the same ids", "group", x.o.Group, "error", err)
	}
	_ = x.call("hold", func(ctx context.Context) error {
		_, err := x.store.Hold(ctx, x.holdParams(0, nil, true))
		return err
	})
}

// left counts what Once leaves.
func (x *run) left() (l Left, err error) {
	err = x.call("status", func(ctx context.Context) error {
		s, err := x.desk.Status(ctx, StatusParams{Group: x.o.Group})
		for _, g := range s.Groups {
			l.Waiting, l.Dead = l.Waiting+g.Waiting, l.Dead+g.Dead
		}
		return err
	})
	return l, err
}

// wait sleeps until something happens, or for d.
func (x *run) wait(d time.Duration) {
	if d <= 0 {
		select {
		case <-x.rung:
			x.wake()
		default:
		}
		return
	}
	var ended <-chan struct{}
	if !x.stopping {
		ended = x.ctx.Done()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.answers.signal:
	case <-x.freed:
		x.sender = false
	case <-x.rung:
		x.wake()
	case <-ended:
	}
}

// wake looks for new events at once.
func (x *run) wake() { x.nextRead, x.pause = time.Time{}, x.o.MinPoll }

// next is when something is due.
func (x *run) next(now time.Time) time.Time {
	t := now.Add(time.Second)
	soon := func(at time.Time) {
		if at.Before(t) {
			t = at
		}
	}
	asks := func(at time.Time) { // of the store
		if at.Before(x.away) {
			at = x.away
		}
		soon(at)
	}
	if x.stopping {
		soon(x.stopBy)
	} else {
		asks(x.nextHold)
		asks(x.nextKeep)
		if x.canTake(now) {
			asks(x.nextTake)
		}
		if x.canRead() {
			asks(x.nextRead)
		}
	}
	if x.dirty {
		asks(x.nextMove)
	}
	if len(x.sent) > 0 {
		soon(x.sent[0].at.Add(x.o.PublishTimeout))
	}
	for _, p := range x.parts {
		if p.leaving && !p.done && !x.stopping {
			soon(p.leaveBy)
		}
	}
	for _, d := range x.dests {
		if len(d.ready) > 0 && now.Before(d.until) {
			soon(d.until)
		}
	}
	return t
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
