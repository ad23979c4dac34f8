package idempo

import (
	"sync"
	"time"
)

// Who sends one request under freshLimit new keys within freshWindow makes a key for each attempt.
const (
	freshLimit  = 3
	freshWindow = 10 * time.Minute
	maxFresh    = 4096 // requests remembered, the newest
)

// freshKeys remembers which requests have lately run under new keys, by fingerprint: that is made under a key of the tenant, and
// of its operation. It takes the same memory from the first call on.
type freshKeys struct {
	mu   sync.Mutex
	ring []freshKey
	next int
	at   map[[16]byte]int32 // place in ring
}

type freshKey struct {
	sum   [16]byte
	first time.Time // of the window
	n     int
	used  bool
}

// seen notes a new key for the request of this fingerprint at now, and returns how many there were in the last ten minutes; less,
// where the oldest of them is older than that.
func (f *freshKeys) seen(hash []byte, now time.Time) int {
	if len(hash) < 16 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ring == nil {
		f.ring, f.at = make([]freshKey, maxFresh), make(map[[16]byte]int32, maxFresh)
	}
	sum := [16]byte(hash)
	if i, ok := f.at[sum]; ok {
		k := &f.ring[i]
		if now.Sub(k.first) >= freshWindow {
			k.first, k.n = now, 0
		}
		k.n++
		return k.n
	}
	k := &f.ring[f.next]
	if k.used {
		delete(f.at, k.sum)
	}
	*k = freshKey{sum: sum, first: now, n: 1, used: true}
	f.at[sum] = int32(f.next) //nolint:gosec // below maxFresh
	f.next = (f.next + 1) % len(f.ring)
	return 1
}
