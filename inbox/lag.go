package inbox

import (
	"maps"
	"sync"
)

// lags is how far a subscriber is behind, by partition.
type lags struct {
	mu sync.Mutex
	n  map[string]int64
}

// SetLag is how adapters say how many messages of a partition, or queue, this subscriber has not acknowledged, those that
// are not delivered yet included. A negative n forgets the partition: another process has it now.
func (in *Inbox) SetLag(partition string, n int64) {
	in.lag.mu.Lock()
	defer in.lag.mu.Unlock()
	if n < 0 {
		delete(in.lag.n, partition)
		return
	}
	if in.lag.n == nil {
		in.lag.n = map[string]int64{}
	}
	in.lag.n[partition] = n
}

// Lag is how many messages the subscriber has not acknowledged, by partition or queue, as the consumers of this Inbox
// were last told by their brokers. What the inbox itself has stored for later is not among them: see Find.
func (in *Inbox) Lag() map[string]int64 {
	in.lag.mu.Lock()
	defer in.lag.mu.Unlock()
	return maps.Clone(in.lag.n)
}
