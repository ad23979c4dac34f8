package mysql

import (
	"context"
	"time"

	"github.com/idempo/idempo"
)

// sweepRows is how many rows one transaction of a sweep looks at: it holds their locks, and is short.
const sweepRows = 200

// Sweep implements idempo.Sweeper. One process at a time sweeps: the others get 0. A batch is cut into short transactions
// with a pause as long between them. Records that somebody has locked are left for the next one.
func (s *Store) Sweep(ctx context.Context, batch int) (done int, err error) {
	if t, err := s.enter(ctx, "sweep", idempo.Key{}); err != nil {
		return 0, err
	} else if t != nil {
		return 0, misuse("sweep", idempo.Key{}, "a sweep has its own transactions")
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	for done < batch {
		began := time.Now()
		var n int
		var more bool
		err := s.short(ctx, "sweep", idempo.Key{}, func(x *session) (err error) {
			n, more, err = s.sweepOnce(ctx, x, min(sweepRows, batch-done))
			return err
		})
		if err != nil {
			return done, err
		}
		if done += n; !more || !pause(ctx, time.Since(began)) {
			break
		}
	}
	return done, nil
}

// sweepOnce sweeps up to limit rows; more says that there may be further ones.
func (s *Store) sweepOnce(ctx context.Context, x *session, limit int) (done int, more bool, err error) {
	mine := false
	who := []any{"sweeper", s.sweeper}
	err = each(ctx, x.on, s.q["sweep_lease"].with(nil, who...), func(scan func(...any) error) error {
		mine = true
		return scan(new(int))
	})
	if err != nil || !mine {
		return 0, false, err
	}
	due := map[string][]idempo.Key{}
	n := 0
	err = each(ctx, x.on, s.q["sweep_due"].with(nil, "limit", int64(limit)), func(scan func(...any) error) error {
		var tenant, operation, id, aliases []byte
		var what string
		if err := scan(&tenant, &operation, &id, &aliases, &what); err != nil {
			return err
		}
		n++
		k := idempo.Key{Tenant: string(tenant), Operation: string(operation), ID: string(id)}
		due[what] = append(due[what], k)
		if what == "gone" {
			for _, id := range split(aliases) {
				k.ID = id
				due["names"] = append(due["names"], k)
			}
		}
		return nil
	})
	if err != nil || n == 0 {
		return 0, false, err
	}
	for _, step := range []struct{ name, what string }{
		{"sweep_remove", "gone"}, {"sweep_remove", "names"}, {"sweep_attempts", "gone"}, {"sweep_tombstone", "tombstone"},
		{"sweep_doubt", "doubt"}, {"sweep_watch", "watch"},
	} {
		if len(due[step.what]) == 0 {
			continue
		}
		if _, err := exec(ctx, x.on, s.q[step.name].with(nil, "keys", due[step.what], "endless", endless)); err != nil {
			return 0, false, err
		}
	}
	_, err = exec(ctx, x.on, s.q["sweep_mine"].with(nil, who...))
	return n - len(due["watch"]), n == limit, err
}
