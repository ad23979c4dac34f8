package idempo

import (
	"sync"
	"time"
)

// flights holds the keys this process is at work on. Duplicates that find their key here cost no store call: they
// compare fingerprints in memory, then wait or are told that it is in progress.
type flights struct {
	perKey, total int
	mu            sync.Mutex
	byDigest      map[string]*flight
	waiting       int
}

// flight is one key at work. done, made by the first who waits, is closed by finish; end, set before, is what duplicates
// may share: nil where they have to ask the store again. It stays as long as the claim does, so it holds no call.
type flight struct {
	digest  string
	hash    []byte // sum, as a rule
	sum     [digestSize]byte
	recipe  string
	detail  []byte
	since   time.Time
	lease   time.Duration
	running bool          // the leader won the key; before, it only asks the store
	known   chan struct{} // made by the first who wants to know; closed when running is set, or at the end
	done    chan struct{}
	over    bool
	end     *Begun
	waiters int
}

func (f *flights) init(perKey int) {
	f.perKey, f.total, f.byDigest = perKey, 10*perKey, map[string]*flight{}
}

// join makes c the leader of its key, or returns the flight of who is.
func (f *flights) join(c *call) (fl *flight, leader bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl = f.byDigest[c.p.Key.ID]; fl != nil {
		return fl, false
	}
	fl = &flight{digest: c.p.Key.ID, recipe: c.p.Recipe, detail: c.p.Detail, since: time.Now(), lease: c.op.Lease}
	fl.hash = append(fl.sum[:0], c.p.Hash...)
	c.leads = fl
	f.byDigest[fl.digest] = fl
	return fl, true
}

// finish ends fl with what duplicates may share. A second finish does nothing.
func (f *flights) finish(fl *flight, end Begun) {
	if fl == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byDigest[fl.digest] != fl { // not secret: pointers of flights
		return
	}
	delete(f.byDigest, fl.digest)
	fl.over = true
	if fl.done == nil && fl.known == nil {
		return
	}
	if b := end.shared(); b.Verdict != "" { // a copy: the leader's caller owns end
		fl.end = &b
	}
	if fl.done != nil {
		close(fl.done)
	}
	fl.tell()
}

// run notes that the leader of fl has won the key and is at work.
func (f *flights) run(fl *flight) {
	if fl == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.running = true
	fl.tell()
}

func (fl *flight) tell() {
	if fl.known != nil {
		close(fl.known)
		fl.known = nil
	}
}

// ask returns nil once it is known what the leader of fl does, else a channel to wait on. over: it has ended.
func (f *flights) ask(fl *flight) (known <-chan struct{}, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case fl.over || f.byDigest[fl.digest] != fl: // not secret: pointers of flights
		return nil, true
	case fl.running:
		return nil, false
	case fl.known == nil:
		fl.known = make(chan struct{})
	}
	return fl.known, false
}

// wait counts a waiter in, if there is room. over: fl has ended in between.
func (f *flights) wait(fl *flight) (room, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case fl.over:
		return false, true
	case fl.waiters >= f.perKey || f.waiting >= f.total:
		return false, false
	}
	if fl.done == nil {
		fl.done = make(chan struct{})
	}
	fl.waiters++
	f.waiting++
	return true, false
}

func (f *flights) leave(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.waiters--
	f.waiting--
}

// share is the turn of a duplicate of f, which has ended.
func (f *flight) share() turn {
	if f.end == nil {
		return anew
	}
	return shares
}

// retryAfter is Record.RetryAfter by this process's monotonic clock.
func (f *flight) retryAfter() time.Duration {
	age := time.Since(f.since)
	return max(time.Second, min(age/2, 30*time.Second, max(f.lease-age%max(f.lease, 1), 0)))
}

// maxRecent bounds the keys remembered as finished, in two generations.
const maxRecent = 32_768

// recent remembers keys that this process has seen finished, so that their replays are read at once instead of
// opening a transaction first. It is a hint about the way to ask, never an answer.
type recent struct {
	mu        sync.Mutex
	now, last map[string]struct{}
}

func (r *recent) add(digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil || len(r.now) >= maxRecent {
		r.last, r.now = r.now, make(map[string]struct{})
	}
	r.now[digest] = struct{}{}
}

func (r *recent) has(digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.now[digest]; ok {
		return true
	}
	_, ok := r.last[digest]
	return ok
}
