package server

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
)

// storeHealth knows whether the store answers, from the calls that are made anyway and, where none are, from one of its own.
type storeHealth struct {
	down atomic.Bool
	last atomic.Int64 // unix nanoseconds of the last answer or failure
}

// healthEvery is how old the last finding may be before the store is asked.
const healthEvery = 2 * time.Second

func (h *storeHealth) up() bool { return !h.down.Load() }

// Observe implements idempo.Observer.
func (h *storeHealth) Observe(_ context.Context, e idempo.Event) {
	if e.Kind == "store" {
		h.found(e.Class != "unavailable")
	}
}

func (h *storeHealth) found(up bool) {
	h.down.Store(!up)
	h.last.Store(time.Now().UnixNano())
}

// watch asks the store for a key that does not exist whenever nothing was heard of it for a while, until ctx ends.
func (h *storeHealth) watch(ctx context.Context, s idempo.Store) {
	h.found(true)
	t := time.NewTicker(healthEvery / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if time.Since(time.Unix(0, h.last.Load())) < healthEvery {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, healthEvery)
		_, err := s.Lookup(ask, idempo.LookupParams{WithoutBody: true,
			Key: idempo.Key{Tenant: "idempo", Operation: "health", ID: strings.Repeat("\x00", 32)}})
		cancel()
		if ctx.Err() == nil {
			h.found(err == nil)
		}
	}
}
