package operator

import (
	"context"
	"time"
)

// CounterKeeper is a store that keeps what processes have counted, so that plots outlive them and add up over all of them.
// Without it each process shows what it has counted itself.
type CounterKeeper interface {
	// KeepCounters writes p.Put, each in the place of what stands under its Span, Start and Process, so that it may be repeated;
	// then removes what p.Forget names and returns what p.Read names, ordered by Start and Process. On error it is not
	// known whether anything was written. It is a transaction of its own or several, and never joins the caller's.
	KeepCounters(ctx context.Context, p KeepCountersParams) (KeptCounters, error)
}

// KeepCountersParams are what a process has counted, and what it wants to see.
type KeepCountersParams struct {
	Put    []CounterSlot
	Forget []CounterRange // slots that start before Start
	Read   []CounterRange // slots that start at Start or later
}

// CounterRange names slots of one width.
type CounterRange struct {
	Span  time.Duration
	Start time.Time
}

// CounterSlot is what one process has counted in the time from Start on, Span long. A store keeps whole seconds of both and does
// not look into Data.
type CounterSlot struct {
	Span    time.Duration
	Start   time.Time
	Process string // at most 64 bytes; "" is all of them
	Data    []byte // at most 1 MiB
}

// KeptCounters is the answer to KeepCounters.
type KeptCounters struct {
	Now   time.Time // on the store's clock
	Slots []CounterSlot
}

// Weigher is a store that can say how big it is and what its sweeper has left to do. Without it these numbers are missing.
type Weigher interface {
	// Weigh reads a bounded number of rows, takes no lock and writes nothing. Both numbers may be estimates.
	Weigh(ctx context.Context, p WeighParams) (Weight, error)
}

// WeighParams ask for the weight of a store.
type WeighParams struct {
	Now time.Time // zero outside tests
}

// Weight is how big a store is.
type Weight struct {
	Now       time.Time // on the store's clock
	Bytes     int64     // of its tables and indexes; of SQLite: of the whole file
	OldestDue time.Time // since when the sweeper could have done what it has not; zero: it has done everything
}
