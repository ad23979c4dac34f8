package mysql

import (
	"context"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.DigestKeeper     = (*Store)(nil)
	_ operator.DigestKeyCounter = (*Store)(nil)
)

// KeepDigestKeys implements operator.DigestKeeper. The keys stand in table digest_keys; the row of table meta, locked,
// orders those who start at once.
func (s *Store) KeepDigestKeys(ctx context.Context, p operator.DigestKeysParams) (found operator.DigestKeys, err error) {
	err = s.short(ctx, "keep digest keys", idempo.Key{}, func(x *session) (err error) {
		found, err = s.keepDigestKeys(ctx, x, p)
		return err
	})
	if err != nil {
		return operator.DigestKeys{}, err
	}
	return found, nil
}

func (s *Store) keepDigestKeys(ctx context.Context, x *session, p operator.DigestKeysParams) (found operator.DigestKeys, err error) {
	if err := each(ctx, x.on, s.q["digest_key_lock"].with(nil), func(scan func(...any) error) error { return scan(new(int)) }); err != nil {
		return found, err
	}
	var known []operator.DigestKey
	err = each(ctx, x.on, s.q["digest_keys"].with(nil), func(scan func(...any) error) error {
		var k operator.DigestKey
		err := scan(&k.ID, &k.Mark)
		known = append(known, k)
		return err
	})
	if err != nil {
		return found, err
	}
	found, unused, err := p.Compare(known, func(id string) (int64, error) { return s.madeWith(ctx, x.on, id) })
	if err != nil || !found.OK() {
		return found, err
	}
	for _, id := range unused {
		if _, err := exec(ctx, x.on, s.q["digest_key_forget"].with(nil, "id", id)); err != nil {
			return found, err
		}
	}
	for _, k := range p.Keys {
		if _, err := exec(ctx, x.on, s.q["digest_key_put"].with(nil, "id", k.ID, "mark", k.Mark)); err != nil {
			return found, err
		}
	}
	return found, nil
}

// CountDigestKey implements operator.DigestKeyCounter.
func (s *Store) CountDigestKey(ctx context.Context, id string) (int64, error) {
	n, err := s.madeWith(ctx, s.db, id)
	return n, s.failed("count digest key", idempo.Key{}, err, reading)
}

func (s *Store) madeWith(ctx context.Context, on queryer, id string) (n int64, err error) {
	err = each(ctx, on, s.q["digest_key_use"].with(nil, "id", id), func(scan func(...any) error) error { return scan(&n) })
	return n, err
}
