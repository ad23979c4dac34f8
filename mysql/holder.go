package mysql

import (
	"context"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var _ operator.Snapshots = (*Store)(nil)

// OldestSnapshot implements operator.Snapshots: the transaction that began first on the server, in any of its databases, by its
// connection. It needs the right PROCESS.
func (s *Store) OldestSnapshot(ctx context.Context) (held operator.Held, err error) {
	err = each(ctx, s.db, s.q["snapshot"].with(nil), func(scan func(...any) error) error {
		var since *int64
		err := scan(&held.Session, &since)
		held.Since = utc(since)
		return err
	})
	return held, s.failed("oldest snapshot", idempo.Key{}, err, reading)
}
