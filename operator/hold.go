package operator

import (
	"context"
	"time"

	"github.com/idempo/idempo"
)

// Holder is a store that can tell who runs a key inside an open transaction, of which no row is to be seen. Without it such a
// key looks like an unknown one.
type Holder interface {
	// Holder returns who has claimed the key, as the store has it, in a transaction that is open; the zero Held says that
	// nobody is known to. It waits for nobody and writes nothing.
	Holder(ctx context.Context, key idempo.Key) (Held, error)
}

// Snapshots is a store that can tell who keeps its database from cleaning up: while somebody may still read a version of a row,
// it stays, tables grow, and an outbox that waits for open transactions does not move. Without it nobody is known to.
type Snapshots interface {
	// OldestSnapshot returns the transaction, or what stands for one, whose view of the database is the oldest; the zero Held
	// says that there is none. Its own session does not count. It waits for nobody and writes nothing.
	OldestSnapshot(ctx context.Context) (Held, error)
}

// Held is a transaction that runs a key, or holds a snapshot.
type Held struct {
	Session     string // of the database
	Application string // as the session names itself
	Since       time.Time
}

// IsZero reports whether nobody is known.
func (h Held) IsZero() bool { return h == Held{} }

// held asks who runs a key that has no row, or one that an open transaction may be replacing.
func (s *Service) held(ctx context.Context, by Principal, keys []idempo.Key) (idempo.Key, Held, error) {
	h, ok := s.store.(Holder)
	if !ok || !by.reads() {
		return idempo.Key{}, Held{}, nil
	}
	for _, key := range keys {
		if !by.sees(key.Tenant) {
			continue
		}
		held, err := h.Holder(ctx, key)
		if err != nil || !held.IsZero() {
			return key, held, err
		}
	}
	return idempo.Key{}, Held{}, nil
}
