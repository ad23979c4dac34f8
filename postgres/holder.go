package postgres

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.Holder    = (*Store)(nil)
	_ operator.Snapshots = (*Store)(nil)
)

// Holder implements operator.Holder: the lock of a key shows the session that has claimed it. A role without pg_read_all_stats
// does not see since when another role's session is at it.
func (s *Store) Holder(ctx context.Context, key idempo.Key) (operator.Held, error) {
	return s.who(ctx, "holder", key, s.q["holder"].with(nil, "lock", s.lock(key, key.ID)))
}

// OldestSnapshot implements operator.Snapshots: sessions, prepared transactions and replication slots of every database of the
// server that hold back the clean-up of this one. Since when is not known of a slot.
func (s *Store) OldestSnapshot(ctx context.Context) (operator.Held, error) {
	return s.who(ctx, "oldest snapshot", idempo.Key{}, s.q["snapshot"].with(nil))
}

// who reads one row about a session.
func (s *Store) who(ctx context.Context, op string, key idempo.Key, st Statement) (held operator.Held, err error) {
	st.Row = func(scan func(...any) error) error {
		var since *time.Time
		err := scan(&held.Session, &held.Application, &since)
		held.Since = utc(since)
		return err
	}
	if err := s.run(ctx, nil, st); err != nil {
		return operator.Held{}, unread(op, key, err)
	}
	return held, nil
}
