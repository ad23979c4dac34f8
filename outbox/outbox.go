package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

// Outbox appends events. It is safe for concurrent use; any number of processes may have one.
type Outbox struct {
	tx    idempo.Transactor
	join  idempo.Joiner
	store Store
	o     Options

	mu     sync.Mutex
	waked  time.Time // when other processes were last told
	waking bool      // that is under way
}

// wakeEvery bounds how often other processes are told: 50 times a second.
const wakeEvery = 20 * time.Millisecond

// New returns an outbox over a store that keeps one (Opener) and has transactions: postgres, mysql, sqlite, memstore. The
// error lists every mistake. New sends nothing.
func New(store idempo.Store, o Options) (*Outbox, error) {
	o = o.withDefaults()
	errs := o.check()
	s, keeps := store.(Opener)
	tx, transacts := store.(idempo.Transactor)
	join, joins := store.(idempo.Joiner)
	if !keeps || !transacts || !joins {
		errs = append(errs, errors.New("outbox: the store keeps no outbox: use postgres, mysql, sqlite or memstore"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	log, _ := s.Outbox()
	return &Outbox{tx: tx, join: join, store: log, o: o}, nil
}

// Options returns the settings with their defaults.
func (b *Outbox) Options() Options { return b.o }

// Do runs fn in a transaction of the store, commits it when fn returns nil, and then wakes the relays. fn finds the
// transaction by the store's accessor, and appends with the context it gets. Errors are those of idempo.Transactor.InTx;
// on any of them nothing of it will be published, but where idempo.Error.Unknown is true: then the commit, and with it
// the events, may have happened.
func (b *Outbox) Do(ctx context.Context, fn func(context.Context) error) error {
	err := b.tx.InTx(ctx, fn)
	var e *idempo.Error
	if err == nil || errors.As(err, &e) && e.Unknown {
		b.Wake()
	}
	return err
}

// Append writes events in the transaction that ctx carries, and returns their ids in the same order. They are published
// if and only if that transaction commits, in its order within each key. Call Wake after the commit where Do is not
// used, or they wait for up to RelayOptions.MaxPoll.
//
// Errors: ErrEvent, ErrHeader, ErrTooLarge, ErrTooManyKeys, ErrNoTx, after which nothing is written and the transaction
// is as usable as before; otherwise the database's, after which it must be rolled back. Append keeps nothing of events.
func (b *Outbox) Append(ctx context.Context, events ...Event) (ids []string, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	rows, err := b.rows(ctx, events)
	if err != nil {
		return nil, err
	}
	switch joined, _, err := b.join.Joined(ctx); {
	case err != nil:
		return nil, err
	case !joined:
		return nil, ErrNoTx
	}
	if _, err := b.store.Append(ctx, AppendParams{Rows: rows, Lock: b.o.KeyLock == KeyLockAdvisory}); err != nil {
		return nil, err
	}
	ids = make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids, nil
}

// rows fills in the defaults and checks the events.
func (b *Outbox) rows(ctx context.Context, events []Event) ([]Row, error) {
	var trace Trace
	if b.o.TraceFunc != nil {
		trace.Parent, trace.State = b.o.TraceFunc(ctx)
	}
	if c := idempo.FromContext(ctx); c != nil {
		trace.KeyRef, trace.Correlation = c.Ref(), c.Ref()
	}
	if b.o.CorrelationFunc != nil {
		if own := b.o.CorrelationFunc(ctx); own != "" {
			trace.Correlation = own
		}
	}
	if trace.Correlation != "" {
		if err := checkHeaders([][2]string{{"x-correlation", trace.Correlation}}); err != nil || len(trace.Correlation) > maxText {
			return nil, fmt.Errorf("%w: append: correlation-id: at most %d bytes of UTF-8 without control characters", ErrHeader, maxText)
		}
	}
	now := time.Now()
	keys := map[[2]string]struct{}{}
	rows := make([]Row, len(events))
	for i, e := range events {
		if e.ID == "" {
			e.ID = newID(now)
		}
		if e.Source == "" {
			e.Source = b.o.Source
		}
		if e.Tenant == "" {
			e.Tenant = b.o.Tenant
		}
		if err := e.check(b.o.MaxPayload); err != nil {
			if len(events) > 1 {
				err = fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
			}
			return nil, err
		}
		u, _ := parseUUID(e.ID)
		e.ID = uuidText(u)
		e.Time = time.Time{}
		rows[i] = Row{Event: e, Partition: PartitionOf(e.Tenant, e.Key, e.ID), Trace: trace}
		if e.Key != "" {
			keys[[2]string{e.Tenant, e.Key}] = struct{}{}
		}
	}
	if b.o.KeyLock == KeyLockAdvisory && len(keys) > maxKeys {
		return nil, fmt.Errorf("%w: append: %d keys, at most %d are locked in one call; append in parts, or lock the rows yourself and set KeyLock: caller", ErrTooManyKeys, len(keys), maxKeys)
	}
	return rows, nil
}

// Wake tells relays that something was committed: those of this process at once, without the database; those of others
// by a signal of the store's, if it has one, at most 50 times a second, sent aside. It never fails and never waits: a
// relay looks by itself, too.
func (b *Outbox) Wake() {
	if s, ok := b.store.(Beller); ok {
		s.Bell().Ring()
	}
	w, ok := b.store.(Waker)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waking || time.Since(b.waked) < wakeEvery {
		return
	}
	b.waking, b.waked = true, time.Now()
	go func() { // ends by itself within a second
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.Wake(ctx) // a hint
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waking = false
	}()
}
