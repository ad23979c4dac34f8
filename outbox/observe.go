package outbox

import (
	"context"
	"time"
)

// Observer learns what relays do. It is called synchronously and must be quick and safe for concurrent use; its panic is
// recovered and changes nothing.
type Observer interface {
	ObserveOutbox(ctx context.Context, o Observation)
}

// Observation is one thing that happened in a group. Kind says which; fields that do not belong to it are zero.
//
//	published        Outcome, Count events; Took: from the send to the answer; Age: from the append to the answer
//	republished      Count sends of an event that had been sent before, by whatever relay
//	window_exceeded  Count sends older than the broker's dedup window
//	owned            Count partitions this relay has now
//	lost             Count partitions that went to another relay unasked
//	store            Op: hold read move take keep status; Took; Err
//	status           Status of the group, read about every 15s by one relay of it; Log: of the whole outbox
//	kept             Count rows that left the log
//	stalled          Took: for how long nothing has got on although there is work
type Observation struct {
	Kind    string
	Group   string
	Outcome string // acked duplicate_ack refused unknown failed no_route unavailable later
	Op      string
	Count   int
	Took    time.Duration
	Age     time.Duration
	Status  *GroupStatus
	Log     *Status
	Err     error
}

// observe tells o; nil hears nothing.
func observe(ctx context.Context, o Observer, what Observation) {
	if o == nil {
		return
	}
	defer func() { _ = recover() }() // an observer's panic changes nothing
	o.ObserveOutbox(ctx, what)
}
