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

// Held is a transaction that runs a key.
type Held struct {
	Session     string // of the database
	Application string // as the session names itself
	Since       time.Time
}

// IsZero reports whether nobody holds the key.
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
