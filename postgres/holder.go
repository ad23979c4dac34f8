package postgres

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var _ operator.Holder = (*Store)(nil)

// Holder implements operator.Holder: the lock of a key shows the session that has claimed it. A role without pg_read_all_stats
// does not see since when another role's session is at it.
func (s *Store) Holder(ctx context.Context, key idempo.Key) (operator.Held, error) {
	var held operator.Held
	st := s.q["holder"].with(nil, "lock", s.lock(key, key.ID))
	st.Row = func(scan func(...any) error) error {
		var since *time.Time
		err := scan(&held.Session, &held.Application, &since)
		held.Since = utc(since)
		return err
	}
	if err := s.run(ctx, nil, st); err != nil {
		return operator.Held{}, unread("holder", key, err)
	}
	return held, nil
}
