package operator

import (
	"context"
	"slices"
)

// DigestKeeper is a store that remembers under which digest keys its records may live. Without it a forgotten digest key shows
// only when a record made with it is met.
type DigestKeeper interface {
	// KeepDigestKeys compares the digest keys of a process that starts with those the store remembers, and remembers
	// p.Keys if they fit. In one transaction:
	//
	//   - A remembered key that is not in p.Keys, and under which records still live, is Missing. Without records it is
	//     forgotten.
	//   - One with the same id and another mark is Changed.
	//   - With p.Made, every remembered key that is not in p.Keys is Foreign: another process has made the key of this store,
	//     or an operator has configured it.
	//
	// If there is any of these, nothing is written. Of concurrent calls with p.Made on a store that remembers nothing, one
	// is served; the others find its key Foreign.
	KeepDigestKeys(ctx context.Context, p DigestKeysParams) (DigestKeys, error)
}

// DigestKeyCounter is a store that can say whether a digest key is still needed. Without it a rotation's last step is a guess.
type DigestKeyCounter interface {
	// CountDigestKey returns how many records were made with the key of that id, at least: counting stops at 100,000. It takes
	// no lock and writes nothing.
	CountDigestKey(ctx context.Context, id string) (int64, error)
}

// DigestKeysParams are the digest keys of a process.
type DigestKeysParams struct {
	Keys []DigestKey
	Made bool // no key is configured: the only one is a key that a process has made for itself
}

// DigestKey is a digest key as a store may see it: its id, and a mark that tells two values apart and shows neither.
type DigestKey struct {
	ID   string
	Mark string // 16 hexadecimal digits of an HMAC under the key
}

// DigestKeys is what does not fit. Its zero value means that all is well.
type DigestKeys struct {
	Missing []MissingKey
	Changed []string // ids
	Foreign []string // ids
}

// OK says whether the keys fit.
func (k DigestKeys) OK() bool { return len(k.Missing)+len(k.Changed)+len(k.Foreign) == 0 }

// MissingKey is a digest key that records need and the process does not have.
type MissingKey struct {
	ID      string
	Records int64 // at least; counting stops at 100,000
}

// Compare says what of p does not fit known, the keys that a store remembers, and which of those may be forgotten: no
// record was made with them. made counts the records of a key, at least. It writes nothing.
func (p DigestKeysParams) Compare(known []DigestKey, made func(id string) (int64, error)) (found DigestKeys, unused []string, err error) {
	for _, k := range known {
		i := slices.IndexFunc(p.Keys, func(o DigestKey) bool { return o.ID == k.ID })
		switch {
		case i >= 0 && p.Keys[i].Mark != k.Mark:
			found.Changed = append(found.Changed, k.ID)
		case i >= 0:
		case p.Made:
			found.Foreign = append(found.Foreign, k.ID)
		default:
			n, err := made(k.ID)
			if err != nil {
				return found, nil, err
			}
			if n > 0 {
				found.Missing = append(found.Missing, MissingKey{ID: k.ID, Records: n})
			} else {
				unused = append(unused, k.ID)
			}
		}
	}
	return found, unused, nil
}
