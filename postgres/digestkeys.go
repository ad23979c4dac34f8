package postgres

import (
	"context"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.DigestKeeper     = (*Store)(nil)
	_ operator.DigestKeyCounter = (*Store)(nil)
)

// KeepDigestKeys implements operator.DigestKeeper. The keys stand in table digest_keys; a transaction-level advisory lock orders
// those who start at once: each reads after it got the lock.
func (s *Store) KeepDigestKeys(ctx context.Context, p operator.DigestKeysParams) (found operator.DigestKeys, err error) {
	fail := func(err error) (operator.DigestKeys, error) {
		return operator.DigestKeys{}, failed("keep digest keys", idempo.Key{}, err, false)
	}
	tx, err := s.port.Begin(ctx, s.q["digest_key_lock"].with(nil, "lock_name", "idempo digest keys "+s.id))
	if err != nil {
		return fail(err)
	}
	found, unused, err := s.compare(ctx, tx, p)
	if err != nil || !found.OK() {
		if undo := s.port.Rollback(context.WithoutCancel(ctx), tx); err == nil && undo != nil {
			err = undo
		}
		if err != nil {
			return fail(err)
		}
		return found, nil
	}
	var writes []Statement
	for _, id := range unused {
		writes = append(writes, s.q["digest_key_forget"].with(nil, "id", id))
	}
	for _, k := range p.Keys {
		writes = append(writes, s.q["digest_key_put"].with(nil, "id", k.ID, "mark", k.Mark))
	}
	if err := s.port.Commit(ctx, tx, writes...); err != nil {
		return fail(err)
	}
	return found, nil
}

// compare reads what is remembered, after the lock was got, and says what does not fit and what is not needed any more.
func (s *Store) compare(ctx context.Context, tx PortTx, p operator.DigestKeysParams) (found operator.DigestKeys, unused []string, err error) {
	var known []operator.DigestKey
	read := s.q["digest_keys"].with(nil)
	read.Row = func(scan func(...any) error) error {
		var k operator.DigestKey
		err := scan(&k.ID, &k.Mark)
		known = append(known, k)
		return err
	}
	if err := s.port.Run(ctx, tx, read); err != nil {
		return found, nil, err
	}
	return p.Compare(known, func(id string) (int64, error) {
		return s.madeWith(id, func(st Statement) error { return s.port.Run(ctx, tx, st) })
	})
}

// CountDigestKey implements operator.DigestKeyCounter.
func (s *Store) CountDigestKey(ctx context.Context, id string) (int64, error) {
	n, err := s.madeWith(id, func(st Statement) error { return s.run(ctx, nil, st) })
	if err != nil {
		return 0, unread("count digest key", idempo.Key{}, err)
	}
	return n, nil
}

func (s *Store) madeWith(id string, run func(Statement) error) (n int64, err error) {
	count := s.q["digest_key_use"].with(nil, "id", id)
	count.Row = func(scan func(...any) error) error { return scan(&n) }
	err = run(count)
	return n, err
}
