package sqlite

import (
	"context"
	"database/sql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.DigestKeeper     = (*Store)(nil)
	_ operator.DigestKeyCounter = (*Store)(nil)
)

// KeepDigestKeys implements operator.DigestKeeper. The keys stand in table meta; the write lock orders those who start at once.
func (s *Store) KeepDigestKeys(ctx context.Context, p operator.DigestKeysParams) (found operator.DigestKeys, err error) {
	err = s.share(ctx, "keep digest keys", idempo.Key{}, nil, func(x *session) (err error) {
		found, err = x.keepDigestKeys(p)
		return failure("keep digest keys", idempo.Key{}, err, false)
	})
	return found, err
}

func (x *session) keepDigestKeys(p operator.DigestKeysParams) (found operator.DigestKeys, err error) {
	if err := x.several(); err != nil {
		return found, err
	}
	known, err := x.digestKeys()
	if err != nil {
		return found, err
	}
	found, unused, err := p.Compare(known, x.madeWith)
	if err != nil {
		return found, err
	}
	if !found.OK() {
		return found, nil
	}
	for _, id := range unused {
		if _, err := x.exec("digest_key_forget", id); err != nil {
			return found, err
		}
	}
	for _, k := range p.Keys {
		if _, err := x.exec("set_meta", "digest_key:"+k.ID, k.Mark); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (x *session) digestKeys() (out []operator.DigestKey, err error) {
	rows, err := x.query("digest_keys")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k operator.DigestKey
		if err := rows.Scan(&k.ID, &k.Mark); err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, rows.Err()
}

func (x *session) madeWith(id string) (n int64, err error) {
	rows, err := x.query("digest_key_use", id)
	if err != nil {
		return 0, err
	}
	return number(rows)
}

// CountDigestKey implements operator.DigestKeyCounter.
func (s *Store) CountDigestKey(ctx context.Context, id string) (int64, error) {
	rows, err := s.readRows(ctx, "digest_key_use", id)
	if err != nil {
		return 0, failure("count digest key", idempo.Key{}, err, false)
	}
	n, err := number(rows)
	return n, failure("count digest key", idempo.Key{}, err, false)
}

// number reads the number of the one row, and closes rows.
func number(rows *sql.Rows) (n int64, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}
