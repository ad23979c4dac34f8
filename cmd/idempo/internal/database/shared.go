package database

import (
	"context"
	"database/sql"
)

// Shared reports whether two connections lead to one session of the server, as those do of a pooler in transaction mode: a pooler
// that is idle gives both the session that was free last. On SQLite there is none.
func (s *Schema) Shared(ctx context.Context) (bool, error) {
	if s.db == nil || s.c.SQLite != "" {
		return false, nil
	}
	who := "select pg_backend_pid()"
	if s.c.MySQL != "" {
		who = "select connection_id()"
	}
	a, err := s.db.Conn(ctx)
	if err != nil {
		return false, reachable(s.c, err)
	}
	defer func() { _ = a.Close() }()
	b, err := s.db.Conn(ctx)
	if err != nil {
		return false, reachable(s.c, err)
	}
	defer func() { _ = b.Close() }()
	seen := map[int64]*sql.Conn{}
	for range 3 {
		for _, c := range []*sql.Conn{a, b} {
			var id int64
			if err := c.QueryRowContext(ctx, who).Scan(&id); err != nil {
				return false, reachable(s.c, err)
			}
			if other := seen[id]; other != nil && other != c {
				return true, nil
			}
			seen[id] = c
		}
	}
	return false, nil
}
