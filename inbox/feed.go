package inbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/backoff"
)

// Delivery is one message that a broker adapter has taken and not answered.
type Delivery struct {
	Message Message
	// Ack acknowledges it: what became of it is committed. An error is only logged: the redelivery is a duplicate.
	Ack func(ctx context.Context) error
	// Again gives it back to the broker, to be delivered not before d; nil: it is kept until it is decided.
	Again func(ctx context.Context, d time.Duration) error
	// Extend tells the broker, every ExtendEvery, that it is still being worked on; nil: no need.
	Extend      func(ctx context.Context) error
	ExtendEvery time.Duration
}

// Feed is what broker adapters hand deliveries to. It runs Options.Workers of them at once, those of one lane in the
// order in which they were added, and acknowledges each when what became of it is durable, never before. While the store
// is away it keeps what it has, acknowledges nothing and asks again with full jitter. It runs Work, too.
type Feed struct {
	in   *Inbox
	h    Handler
	root *Share // the deliveries that leave with the feed itself

	free  chan struct{}  // places of workers
	moved chan struct{}  // something left, or the feed failed
	all   sync.WaitGroup // what runs, of every share, and Work

	mu    sync.Mutex
	n     int // taken and not answered
	bytes int
	lanes map[string][]entry // behind the one that runs
	err   error
}

// entry is a delivery that waits in its lane.
type entry struct {
	share *Share
	d     Delivery
}

// Share is a part of a feed's deliveries that may have to leave before the others, such as those of a partition that
// another process takes over. All shares have the feed's workers and bounds.
type Share struct {
	f     *Feed
	ctx   context.Context // its end stops
	drain context.Context // of handlers: ends DrainTimeout later
	all   sync.WaitGroup

	cancel, drained func()

	mu     sync.Mutex
	closed bool
}

// Feed begins to run deliveries by h until ctx ends. Its caller must call Close.
func (in *Inbox) Feed(ctx context.Context, h Handler) *Feed {
	f := &Feed{in: in, h: h, free: make(chan struct{}, in.o.Workers), moved: make(chan struct{}, 1), lanes: map[string][]entry{}}
	f.root = f.share(ctx)
	f.all.Go(func() {
		if err := in.Work(f.root.ctx, h); err != nil {
			f.fail(err)
		}
	})
	return f
}

// NewShare returns a share of the feed, which ends with the feed at the latest. Its caller must call its Close.
func (f *Feed) NewShare() *Share { return f.share(f.root.ctx) }

func (f *Feed) share(ctx context.Context) *Share {
	s := &Share{f: f}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.drain, s.drained = f.in.Drain(s.ctx)
	return s
}

// Room waits until another message may be taken from the broker and returns how many. The error is the end of the feed's
// context, ErrBreaker, or another reason for which no more may be taken; then call Close.
func (f *Feed) Room() (int, error) { return f.RoomFor(1) }

// RoomFor is Room for an adapter that takes batches: it waits until at least least messages may be taken, or all of
// Options.MaxInFlight if that is less.
func (f *Feed) RoomFor(least int) (int, error) {
	least = min(least, f.in.o.MaxInFlight)
	for {
		f.mu.Lock()
		n, full, err := f.in.o.MaxInFlight-f.n, f.n > 0 && f.bytes >= f.in.o.MaxInFlightBytes, f.err
		f.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case f.root.ctx.Err() != nil:
			return 0, context.Cause(f.root.ctx)
		case n >= max(least, 1) && !full:
			return n, nil
		}
		select {
		case <-f.moved:
		case <-f.root.ctx.Done():
		}
	}
}

// Add runs d when its turn comes. It does not wait.
func (f *Feed) Add(d Delivery) { f.root.Add(d) }

// Add runs d when its turn comes. It does not wait. Once the share is closed d is not run and not acknowledged.
func (s *Share) Add(d Delivery) {
	lane := s.f.in.laneKey(d.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.all.Add(1)
	s.f.add(entry{s, d}, lane)
}

func (f *Feed) add(e entry, lane string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.bytes += len(e.d.Message.Body)
	if lane == "" {
		f.all.Go(func() { f.run(e) })
		return
	}
	queue, busy := f.lanes[lane]
	if busy {
		f.lanes[lane] = append(queue, e)
		return
	}
	f.lanes[lane] = nil
	f.all.Go(func() { f.runLane(lane, e) })
}

// laneKey names the lane of m, "" where it has none.
func (in *Inbox) laneKey(m Message) string {
	d, p := in.accept(m, false)
	if p != nil || d.order == OrderNone {
		return ""
	}
	return laneOf(d)
}

// runLane runs e and what was added to its lane meanwhile, one after the other.
func (f *Feed) runLane(lane string, e entry) {
	for {
		var one sync.WaitGroup
		one.Go(func() { f.run(e) }) // a handler that ends its goroutine does not end the lane
		one.Wait()
		f.mu.Lock()
		queue := f.lanes[lane]
		if len(queue) == 0 {
			delete(f.lanes, lane)
			f.mu.Unlock()
			return
		}
		e, f.lanes[lane] = queue[0], queue[1:]
		f.mu.Unlock()
	}
}

// run handles one delivery at a worker's place, unless its share stops first.
func (f *Feed) run(e entry) {
	d := e.d
	defer e.share.all.Done()
	defer f.gone(d)
	extended, done := context.WithCancel(e.share.drain)
	var extending sync.WaitGroup
	defer extending.Wait()
	defer done()
	if d.Extend != nil && d.ExtendEvery > 0 {
		extending.Go(func() { f.extend(extended, d) })
	}
	select {
	case f.free <- struct{}{}:
	case <-e.share.ctx.Done():
		return
	}
	defer func() { <-f.free }()
	e.share.decide(d)
}

// decide handles d until something is decided, or the share stops.
func (s *Share) decide(d Delivery) {
	const patience = 30 * time.Second // for one that runs elsewhere
	var waited time.Duration
	log := s.f.in.o.Logger.With("subscriber", s.f.in.o.Subscriber)
	for try := 0; s.ctx.Err() == nil; try++ {
		out, err := s.f.in.handleAny(s.drain, d.Message, s.f.h)
		var pause time.Duration
		switch {
		case errors.Is(err, ErrBreaker):
			s.f.fail(err)
			return
		case err != nil:
			if s.ctx.Err() == nil {
				log.Warn("inbox: nothing is decided about a message; it is tried again", "error", err)
			}
			if out.started {
				d.Message.Attempt = max(d.Message.Attempt, 2)
			}
			pause = 50*time.Millisecond + backoff.Full(try, 100*time.Millisecond, 30*time.Second)
		case out.Ack:
			if err := d.Ack(context.WithoutCancel(s.drain)); err != nil {
				log.Warn("inbox: a message could not be acknowledged; it will come again, as a duplicate", "error", err)
			}
			return
		case waited >= patience && d.Again != nil:
			if err := d.Again(context.WithoutCancel(s.drain), out.RetryIn); err == nil {
				return
			}
			fallthrough
		default:
			pause = backoff.Around(max(out.RetryIn, 50*time.Millisecond), 0.5)
			waited += pause
		}
		rest(s.ctx, pause)
	}
}

// handleAny is Handle or HandleLeased.
func (in *Inbox) handleAny(ctx context.Context, m Message, h Handler) (Outcome, error) {
	if in.o.Guard == idempo.GuardLeased {
		return in.HandleLeased(ctx, m, h)
	}
	return in.Handle(ctx, m, h)
}

func (f *Feed) extend(ctx context.Context, d Delivery) {
	t := time.NewTicker(d.ExtendEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := d.Extend(ctx); err != nil && ctx.Err() == nil {
				f.in.o.Logger.Warn("inbox: the broker was not told that a message is being worked on", "subscriber", f.in.o.Subscriber, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// gone makes room.
func (f *Feed) gone(d Delivery) {
	f.mu.Lock()
	f.n--
	f.bytes -= len(d.Message.Body)
	f.mu.Unlock()
	f.signal()
}

// Stopped is closed when the feed has stopped by itself, or was told to.
func (f *Feed) Stopped() <-chan struct{} { return f.root.ctx.Done() }

// fail stops the feed for err.
func (f *Feed) fail(err error) {
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	f.mu.Unlock()
	f.root.cancel()
	f.signal()
}

func (f *Feed) signal() {
	select {
	case f.moved <- struct{}{}:
	default:
	}
}

// InFlight is how many deliveries were added and are not answered.
func (f *Feed) InFlight() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Close stops the share: nothing more of it is started, what runs has DrainTimeout to end, and exactly what was committed
// is acknowledged when Close returns.
func (s *Share) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.all.Wait()
	s.drained()
}

// Close stops the feed and every share of it: nothing more is started, what runs has DrainTimeout to end, and exactly what
// was committed is acknowledged. It returns why the feed stopped by itself, nil if its context ended.
func (f *Feed) Close() error {
	f.root.cancel()
	f.all.Wait()
	f.root.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// rest waits for d or the end of ctx.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
