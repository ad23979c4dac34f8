package mysql

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// tries bounds the loops that meet a row that others keep changing.
const tries = 5

// errTaken says that another record has a digest that was to be occupied.
var errTaken = errors.New("mysql: a digest was taken by another")

// The answers of a statement that inserts, see insert.sql.
const (
	isNew  = 0
	isOwn  = 2
	others = 1
)

// insert makes the row of rec where nothing was; on is a transaction, or nil for a statement by itself.
func (s *Store) insert(ctx context.Context, on queryer, rec idempo.Record, aliases []string) (won bool, err error) {
	st := s.q["insert"].with(&rec, "aliases", joined(aliases), "watch_at", watch(rec, ""))
	var answer int64
	if on == nil {
		answer, err = s.execAlone(ctx, st)
	} else {
		answer, err = exec(ctx, on, st)
	}
	return err == nil && answer != others, err
}

// joined is a column of digests.
func joined(ids []string) any {
	if len(ids) == 0 {
		return nil
	}
	return []byte(strings.Join(ids, ""))
}

// update writes rec in the place of old. where x is nil the statement stands by itself, and says whether old was still
// there; in a transaction old's row is locked.
func (s *Store) update(ctx context.Context, x *session, old row, rec idempo.Record, aliases []string, alive time.Time) (bool, error) {
	rec.Key = old.rec.Key
	next := raw("rev + 1")
	if x == nil {
		next = "last_insert_id(rev + 1)"
	}
	args := []any{"aliases", joined(aliases), "watch_at", watch(rec, old.rec.State), "next_rev", next,
		"old_attempt", old.rec.Attempt, "old_state", string(old.rec.State), "old_token", token(old.rec), "old_rev", old.rev}
	if !alive.IsZero() {
		args = append(args, "alive", alive)
	}
	st := s.q["update"].with(&rec, args...)
	if x == nil {
		rev, err := s.execAlone(ctx, st)
		return rev == old.rev+1, err
	}
	_, err := exec(ctx, x.on, st)
	return true, err
}

func token(r idempo.Record) any {
	if r.Token.IsZero() {
		return nil
	}
	return r.Token[:]
}

// put writes rec over old, which is locked, or where nothing was; ids are the digests it is to have, over the rows that
// leave. It returns the aliases that the row has then, and errTaken, having undone itself, where another record has one
// of ids.
func (s *Store) put(ctx context.Context, x *session, old row, over []row, rec idempo.Record, ids []string) ([]string, error) {
	several := len(ids) > 1 || len(over) > 0
	if several {
		if _, err := x.on.ExecContext(ctx, "savepoint idempo_put"); err != nil {
			return nil, err
		}
	}
	aliases, err := s.putAll(ctx, x, old, over, rec, ids)
	if errors.Is(err, errTaken) && several {
		if _, undo := x.on.ExecContext(ctx, "rollback to savepoint idempo_put"); undo != nil {
			return nil, undo
		}
	}
	return aliases, err
}

func (s *Store) putAll(ctx context.Context, x *session, old row, over []row, rec idempo.Record, ids []string) ([]string, error) {
	for _, gone := range over {
		if err := s.remove(ctx, x, gone); err != nil {
			return nil, err
		}
	}
	if old.rec.State == "" {
		aliases := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == rec.Key.ID })
		won, err := s.insert(ctx, x.on, rec, aliases)
		if err == nil && !won {
			err = errTaken
		}
		if err != nil {
			return nil, err
		}
		return aliases, s.occupy(ctx, x, rec, aliases)
	}
	rec.Key = old.rec.Key
	keep := slices.Clone(old.aliases)
	if _, live := old.rec.Effective(rec.ChangedAt); !live { // what is gone leaves with all its digests
		var free []string
		keep, free = nil, old.aliases
		for _, id := range old.aliases {
			if slices.Contains(ids, id) {
				keep = append(keep, id)
			}
		}
		free = slices.DeleteFunc(slices.Clone(free), func(id string) bool { return slices.Contains(keep, id) })
		if err := s.free(ctx, x, rec.Key, free); err != nil {
			return nil, err
		}
	}
	var missing []string
	for _, id := range ids {
		if id != rec.Key.ID && !slices.Contains(keep, id) {
			missing = append(missing, id)
		}
	}
	if err := s.occupy(ctx, x, rec, missing); err != nil {
		return nil, err
	}
	aliases := append(keep, missing...)
	if old.rec.Attempt > 0 && (old.rec.Attempt != rec.Attempt || old.rec.Generation != rec.Generation) {
		if _, err := exec(ctx, x.on, s.q["archive"].with(&rec)); err != nil {
			return nil, err
		}
	}
	_, err := s.update(ctx, x, old, rec, aliases, time.Time{})
	return aliases, err
}

// occupy makes alias rows of rec.
func (s *Store) occupy(ctx context.Context, x *session, rec idempo.Record, aliases []string) error {
	for _, id := range aliases {
		answer, err := exec(ctx, x.on, s.q["alias"].with(&rec, "alias", id))
		if err == nil && answer == others {
			err = errTaken
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// free deletes alias rows of the record k.
func (s *Store) free(ctx context.Context, x *session, k idempo.Key, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := exec(ctx, x.on, s.q["free"].with(nil, keyArgs(k, "digests", ids)...))
	return err
}

// remove deletes a row, which is locked, with its aliases and earlier attempts.
func (s *Store) remove(ctx context.Context, x *session, old row) error {
	if _, err := exec(ctx, x.on, s.q["remove"].with(nil, keyArgs(old.rec.Key, "digests", old.aliases)...)); err != nil {
		return err
	}
	_, err := exec(ctx, x.on, s.q["remove_attempts"].with(nil, keyArgs(old.rec.Key)...))
	return err
}

// undo takes a claim back that was never completed: its row is what it was before.
func (t *session) undo(ctx context.Context, c *change) error {
	if !c.claim {
		return nil
	}
	s := t.store
	mine := row{rec: c.rec, aliases: c.aliases}
	if c.from.rec.State == "" {
		return s.remove(ctx, t, mine)
	}
	r, err := s.lock(ctx, t, c.key, []string{c.key.ID}, time.Time{}, wait)
	if err != nil || len(r.rows) == 0 {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(r.rows[0].aliases), func(id string) bool { return slices.Contains(c.from.aliases, id) })
	if err := s.free(ctx, t, c.key, fresh); err != nil {
		return err
	}
	if _, err := exec(ctx, t.on, s.q["unarchive"].with(&c.from.rec, "ended_at", c.rec.ClaimedAt)); err != nil {
		return err
	}
	_, err = s.update(ctx, t, r.rows[0], c.from.rec, c.from.aliases, time.Time{})
	return err
}

// issueNext hands out the next one-time key of a completion in its transaction. One that is there and not over is left
// as it is.
func (s *Store) issueNext(ctx context.Context, x *session, p *idempo.AcquireParams) error {
	if p == nil {
		return nil
	}
	ids := sqlkit.Digests(*p)
	for range tries {
		r, err := s.lock(ctx, x, p.Key, ids, p.Now, wait)
		if err != nil {
			return err
		}
		a, _, write, err := sqlkit.JudgeAll(*p, r.records(), r.now)
		if err != nil || !write {
			return err
		}
		sqlkit.Micros(&a.Record)
		old, over := r.pick(*p)
		if _, err = s.put(ctx, x, old, over, a.Record, ids); !errors.Is(err, errTaken) {
			return err
		}
	}
	return errTaken
}
