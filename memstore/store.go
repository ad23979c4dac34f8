package memstore

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
)

var (
	_ idempo.Store      = (*Store)(nil)
	_ idempo.Transactor = (*Store)(nil)
	_ idempo.Joiner     = (*Store)(nil)
	_ idempo.Sweeper    = (*Store)(nil)
	_ idempo.Taker      = (*Store)(nil)
)

// Options of a Store. The zero value works.
type Options struct {
	// MaxRecords is how many records and tombstones are kept at most; one more new key is idempo.ErrUnavailable.
	// Default 100,000. Negative: New panics.
	MaxRecords int
	// Clock is the store's clock. Default time.Now.
	Clock func() time.Time
}

// Store keeps records in memory. It is safe for concurrent use; the zero value is not usable, see New.
type Store struct {
	max   int
	clock func() time.Time

	mu   sync.Mutex          // held briefly, never while a caller's function runs, except OnCommit's
	rows map[idempo.Key]*row // by key and by every alias
	held map[idempo.Key]*Tx  // names that an open transaction has won
	due  dueRows             // rows that Sweep will change
	n    int                 // records, aliases not counted
	buf  []byte              // to pack in

	shelf   shelf                          // of inboxes
	earlier map[idempo.Key][]idempo.Record // attempts that were taken over, settled or retried
	audit   []operator.Entry               // what operators did

	counters []operator.CounterSlot // ordered by span, start and process
	ledger   *ledger                // of the outbox; nil: never used
	bell     outbox.Bell
}

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxRecords < 0 {
		panic("memstore: MaxRecords is negative")
	}
	s := &Store{max: cmp.Or(o.MaxRecords, 100_000), clock: o.Clock, rows: map[idempo.Key]*row{}, held: map[idempo.Key]*Tx{},
		earlier: map[idempo.Key][]idempo.Record{}}
	if s.clock == nil {
		s.clock = time.Now
	}
	return s
}

// now is the store's clock to the microsecond; given wins unless it is zero.
func (s *Store) now(given time.Time) time.Time {
	if given.IsZero() {
		given = s.clock()
	}
	return given.UTC().Truncate(time.Microsecond)
}

// Acquire implements idempo.Store. Where another open transaction holds the key it says in progress, after at most
// p.Wait.
func (s *Store) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	tx, err := s.enter(ctx, "acquire", p.Key)
	if err != nil {
		return idempo.Acquired{}, err
	}
	if !atOnce(p) && (p.Guard == idempo.GuardAtomic) != (tx != nil) {
		return idempo.Acquired{}, misuse("acquire", p.Key, "an atomic claim needs a transaction in its context, a leased one must have none")
	}
	var over <-chan time.Time
	if p.Wait > 0 {
		t := time.NewTimer(p.Wait)
		defer t.Stop()
		over = t.C
	}
	for {
		a, busy, err := s.acquire(tx, p, over != nil)
		if busy == nil {
			return a, err
		}
		select {
		case <-busy:
		case <-over:
			over = nil // once more: it may have ended this moment
		case <-ctx.Done():
			return idempo.Acquired{}, unavailable("acquire", p.Key, ctx.Err())
		}
	}
}

// acquire is one try. Where an open transaction stands in the way and wait is true, busy is closed at its end.
func (s *Store) acquire(tx *Tx, p idempo.AcquireParams, wait bool) (a idempo.Acquired, busy <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(p.Now)
	names := names(p.Key, p.Aliases, p.Unique)
	if tx != nil && tx.ended {
		return idempo.Acquired{}, nil, ended("acquire", p.Key)
	}
	if c := tx.find(names); c != nil {
		r, found := c.seen(now)
		a, write, err := p.Judge(r, found, now)
		if write && err == nil {
			c.won(c.next, s.row(c.names, a.Record), atOnce(p))
		}
		return a, nil, err
	}
	base := s.find(names)
	var from *row
	for _, b := range base { // under several digests there may be several records; whichever refuses decides
		r, _ := b.record()
		if p.Foreign(r) && !live(r, now) {
			continue // it held one of p.Unique, and no more
		}
		one, write, err := p.Judge(r, true, now)
		if err != nil || !write {
			return one, nil, err
		}
		if from == nil {
			from, a = b, one
		}
		if live(r, now) { // what is gone leaves with all its names
			for k := range b.names {
				names = with(names, k)
			}
		}
	}
	if from == nil {
		if a, _, err = p.Judge(idempo.Record{}, false, now); err != nil {
			return a, nil, err
		}
	}
	for _, k := range names {
		if other := s.held[k]; other != nil && other != tx {
			a = idempo.Acquired{Verdict: idempo.VerdictInProgress, RetryAfter: time.Second}
			a.Record = idempo.Record{Key: p.Key, State: idempo.StatePending, Now: now} // nothing of it is known
			if !wait {
				return a, nil, nil
			}
			if other.done == nil {
				other.done = make(chan struct{})
			}
			return a, other.done, nil
		}
	}
	if len(base) == 0 && s.full(1, now) {
		return idempo.Acquired{}, nil, full("acquire", p.Key)
	}
	next := s.row(names, a.Record)
	if tx == nil {
		s.replaced(from, a.Record)
		s.put(next)
		return a, nil, nil
	}
	c := &change{names: names, base: base}
	c.won(from, next, atOnce(p))
	tx.hold(c)
	return a, nil, nil
}

// atOnce reports whether p is written by itself; a claim inside a transaction waits for its completion.
func atOnce(p idempo.AcquireParams) bool { return p.Issue > 0 || !p.Due.IsZero() }

// Renew implements idempo.Store.
func (s *Store) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	return s.update(ctx, write{op: "renew", key: p.Key, now: p.Now, renew: &p})
}

// Release implements idempo.Store.
func (s *Store) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	w := write{op: "release", key: p.Key, now: p.Now, release: &p}
	if p.To == idempo.StateFailed {
		w.free = p.Free
	}
	return s.update(ctx, w)
}

// Complete implements idempo.Store. In a transaction it is decided at once and written at the commit.
func (s *Store) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	if tx, _, err := s.Joined(ctx); err == nil && !tx && p.Won.Guard == idempo.GuardAtomic {
		return idempo.Record{}, misuse("complete", p.Key, "an atomic claim is completed in the transaction that won it")
	}
	return s.update(ctx, write{op: "complete", key: p.Key, now: p.Now, done: &p})
}

// A write is a Renew, Release or Complete: one of the three params is set.
type write struct {
	op      string
	key     idempo.Key
	now     time.Time
	free    []string // names to give back
	renew   *idempo.RenewParams
	release *idempo.ReleaseParams
	done    *idempo.CompleteParams
}

// judge is the Judge method of the params.
func (w write) judge(r idempo.Record, found bool, now time.Time) (rec idempo.Record, write bool, err error) {
	switch {
	case w.renew != nil:
		rec, err = w.renew.Judge(r, found, now)
		return rec, err == nil, err
	case w.release != nil:
		return w.release.Judge(r, found, now)
	}
	return w.done.Judge(r, found, now)
}

// kept returns names without those that w gives back.
func (w write) kept(names []idempo.Key) []idempo.Key {
	if len(w.free) == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(k idempo.Key) bool { return slices.Contains(w.free, k.ID) })
}

// update judges w and does it, at once or with the transaction in ctx.
func (s *Store) update(ctx context.Context, w write) (idempo.Record, error) {
	tx, err := s.enter(ctx, w.op, w.key)
	if err != nil {
		return idempo.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(w.now)
	if tx != nil {
		if tx.ended {
			return idempo.Record{}, ended(w.op, w.key)
		}
		return tx.update(w, now)
	}
	base := s.rows[w.key]
	r, found := base.record()
	rec, write, err := w.judge(r, found, now)
	switch {
	case err != nil || !write:
		return rec, err
	case rec.State == "":
		s.remove(base)
		return rec, nil
	}
	if w.done != nil && w.done.Issue != nil {
		next, k, write, err := s.issue(w.done.Issue, now)
		if err != nil {
			return idempo.Record{}, err
		}
		if write {
			s.put(s.row(k, next))
		}
	}
	s.put(s.row(w.kept(base.keys()), rec))
	return rec, nil
}

// issue judges the next one-time key of a completion. One that is there already is left as it is.
func (s *Store) issue(p *idempo.AcquireParams, now time.Time) (rec idempo.Record, k []idempo.Key, write bool, err error) {
	k = names(p.Key, p.Aliases, nil)
	found := s.find(k)
	if len(found) == 0 && s.full(1, now) {
		return idempo.Record{}, nil, false, full("issue", p.Key)
	}
	var r idempo.Record
	if len(found) > 0 {
		r, _ = found[0].record()
	}
	a, write, err := p.Judge(r, len(found) > 0, now)
	return a.Record, k, write, err
}

// Lookup implements idempo.Store. In a transaction it sees what the transaction did.
func (s *Store) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	tx, err := s.enter(ctx, "lookup", p.Key)
	if err != nil {
		return idempo.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(p.Now)
	k := names(p.Key, p.Aliases, nil)
	var r idempo.Record
	if c := tx.find(k); c != nil {
		r, _ = c.seen(now)
	} else {
		for _, f := range s.find(k) { // of several, the first that is still there
			if r, _ = f.record(); live(r, now) {
				break
			}
		}
	}
	r, _ = r.Effective(now)
	r.Now = now
	if p.WithoutBody {
		r.Result.Body = nil
	}
	return r, nil
}

// All yields every record that is there on the store's clock, in no order, as it was when All was called.
func (s *Store) All() iter.Seq[idempo.Record] {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(time.Time{})
	rows := make([]*row, 0, s.n)
	for k, r := range s.rows {
		if r.key() == k { // not its aliases
			rows = append(rows, r)
		}
	}
	return func(yield func(idempo.Record) bool) {
		for _, r := range rows {
			rec, _ := r.record()
			if eff, ok := rec.Effective(now); ok && !yield(eff) {
				return
			}
		}
	}
}

func live(r idempo.Record, now time.Time) bool {
	_, ok := r.Effective(now)
	return ok
}

// find returns the distinct rows under names, in their order.
func (s *Store) find(names []idempo.Key) (found []*row) {
	for _, k := range names {
		if r := s.rows[k]; r != nil && !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	return found
}

// put makes r the only row under its names.
func (s *Store) put(r *row) {
	for k := range r.names {
		s.drop(s.rows[k])
	}
	for k := range r.names {
		s.rows[k] = r
	}
	s.due.add(r)
	s.n++
}

// drop removes r with its aliases; a nil row is none.
func (s *Store) drop(r *row) {
	if r == nil {
		return
	}
	for k := range r.names {
		delete(s.rows, k)
	}
	s.due.remove(r)
	s.n--
}

// remove is drop for a record that leaves with its earlier attempts.
func (s *Store) remove(r *row) {
	delete(s.earlier, r.key())
	s.drop(r)
}

// replaced keeps the attempt that ends because next is put in the place of old; a nil row is none.
func (s *Store) replaced(old *row, next idempo.Record) {
	if r, found := old.record(); found && next.Attempt > r.Attempt {
		s.archive(r, next.ChangedAt)
	}
}

// full reports whether n more records do not fit, after what is over has left.
func (s *Store) full(n int, now time.Time) bool {
	if s.n+n > s.max {
		s.sweep(len(s.due), now)
	}
	return s.n+n > s.max
}

func names(k idempo.Key, aliases, identities []string) []idempo.Key {
	all := append(make([]idempo.Key, 0, 1+len(aliases)+len(identities)), k)
	for _, id := range aliases {
		all = append(all, idempo.Key{Tenant: k.Tenant, Operation: k.Operation, ID: id})
	}
	for _, id := range identities {
		all = append(all, idempo.Key{Tenant: k.Tenant, Operation: k.Operation, ID: id})
	}
	return all
}

func with(names []idempo.Key, k idempo.Key) []idempo.Key {
	if slices.Contains(names, k) {
		return names
	}
	return append(names, k)
}

func misuse(op string, k idempo.Key, hint string) error {
	return &idempo.Error{Op: op, Code: "misuse", KeyRef: k.Ref(), Hint: hint}
}

func unavailable(op string, k idempo.Key, cause error) error {
	return &idempo.Error{Op: op, Code: "unavailable", KeyRef: k.Ref(), Err: cause}
}

func full(op string, k idempo.Key) error {
	return &idempo.Error{Op: op, Code: "unavailable", KeyRef: k.Ref(), Hint: "the memory store is full; raise memstore's MaxRecords or shorten retention"}
}

func ended(op string, k idempo.Key) error {
	return &idempo.Error{Op: op, Code: "tx_ended", KeyRef: k.Ref(), Hint: "the transaction in this context is over"}
}
