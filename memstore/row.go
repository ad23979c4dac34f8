package memstore

import (
	"encoding/binary"
	"time"

	"github.com/idempo/idempo"
)

// A row is what the store keeps of a record. It never changes: a write puts another row in its place. So two pointers
// are equal exactly if nothing was written between.
type row struct {
	data    string   // the record, packed: nothing a caller holds can reach into it
	aliases []string // other digests of the record's key; each has the row, too
	due     int64    // when Sweep has something to do with it, in microseconds since year 1; 0: never
	at      int      // place in Store.due, -1: not there
}

// row makes the row of r under names. The store is locked.
func (s *Store) row(names []idempo.Key, r idempo.Record) *row {
	s.buf = pack(s.buf[:0], r)
	n := &row{data: string(s.buf), due: micros(dueAt(r)), at: -1}
	for _, k := range names {
		if k.ID != r.Key.ID {
			n.aliases = append(n.aliases, k.ID)
		}
	}
	return n
}

// names yields the record's key and its aliases.
func (r *row) names(yield func(idempo.Key) bool) {
	u := unpacker{r.data}
	k := u.key()
	if !yield(k) {
		return
	}
	for _, k.ID = range r.aliases {
		if !yield(k) {
			return
		}
	}
}

// keys are the names as a slice.
func (r *row) keys() []idempo.Key {
	all := make([]idempo.Key, 0, 1+len(r.aliases))
	for k := range r.names {
		all = append(all, k)
	}
	return all
}

// key returns the record's key.
func (r *row) key() idempo.Key {
	u := unpacker{r.data}
	return u.key()
}

// record returns what r holds; the zero Record and false for a nil row.
func (r *row) record() (idempo.Record, bool) {
	if r == nil {
		return idempo.Record{}, false
	}
	return unpack(r.data), true
}

// dueAt is when the stored record r turns into something else by the clock alone; zero: never.
func dueAt(r idempo.Record) time.Time {
	switch r.State {
	case idempo.StateIssued, idempo.StateFailed, idempo.StateCompleted:
		return r.ExpiresAt
	case idempo.StateExpired:
		return r.GoneAt
	case idempo.StatePending:
		if !r.StartedAt.IsZero() && r.OnCrash == idempo.OnCrashHold {
			return r.LeaseUntil
		}
	}
	return time.Time{}
}

// yearOne is the zero time in microseconds since 1970, so that a zero time is kept as 0.
const yearOne = -62135596800000000

func micros(t time.Time) int64 { return t.UnixMicro() - yearOne }

// pack appends r, field by field in the order of unpack. Record.Now is not kept.
func pack(b []byte, r idempo.Record) []byte {
	str := func(ss ...string) {
		for _, s := range ss {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	blob := func(ps ...[]byte) { // a length of 0 is nil, 1 is empty
		for _, p := range ps {
			if p == nil {
				b = append(b, 0)
				continue
			}
			b = append(binary.AppendUvarint(b, uint64(len(p))+1), p...)
		}
	}
	num := func(ns ...int64) {
		for _, n := range ns {
			b = binary.AppendVarint(b, n)
		}
	}
	str(r.Key.Tenant, r.Key.Operation, r.Key.ID, r.Recipe, string(r.State), string(r.Guard), string(r.OnCrash), r.Surface, r.Owner)
	blob(r.Hash, r.Detail, r.Snapshot, r.BodySHA256, r.Result.Body)
	str(r.DerivedKey, r.Note, r.Trace, r.Sealed, r.Result.Resource.Type, r.Result.Resource.ID)
	num(r.Attempt, r.Generation, r.BodySize, int64(r.Format), int64(r.Result.Status), flag(r.BodyKept), flag(r.Result.Failing))
	b = append(b, r.Token[:]...)
	num(length(r.Result.Header), length(r.References))
	for _, h := range r.Result.Header {
		str(h[0], h[1])
	}
	for _, f := range r.References {
		str(f.Type, f.ID)
	}
	last := int64(0)
	for _, t := range [...]time.Time{r.CreatedAt, r.ClaimedAt, r.StartedAt, r.LeaseUntil, r.DueAt, r.ChangedAt, r.CompletedAt,
		r.IssuedUntil, r.ExpiresAt, r.GoneAt} {
		n := micros(t)
		if n == 0 {
			num(0)
			continue
		}
		num((n-last)<<1 | 1) // the times of a record lie close together
		last = n
	}
	return b
}

// unpack is the reverse of pack. Its strings share the row's immutable text, its slices are its own.
func unpack(data string) (r idempo.Record) {
	u := unpacker{data}
	r.Key = u.key()
	r.Recipe, r.State, r.Guard = u.str(), idempo.State(u.str()), idempo.Guard(u.str())
	r.OnCrash, r.Surface, r.Owner = idempo.OnCrash(u.str()), u.str(), u.str()
	r.Hash, r.Detail, r.Snapshot, r.BodySHA256, r.Result.Body = u.blob(), u.blob(), u.blob(), u.blob(), u.blob()
	r.DerivedKey, r.Note, r.Trace, r.Sealed = u.str(), u.str(), u.str(), u.str()
	r.Result.Resource = idempo.Resource{Type: u.str(), ID: u.str()}
	r.Attempt, r.Generation, r.BodySize, r.Format = u.num(), u.num(), u.num(), int(u.num())
	r.Result.Status, r.BodyKept, r.Result.Failing = int(u.num()), u.num() == 1, u.num() == 1
	u.s = u.s[copy(r.Token[:], u.s):]
	headers, references := u.num(), u.num()
	if headers >= 0 {
		r.Result.Header = make([][2]string, headers)
	}
	for i := range r.Result.Header {
		r.Result.Header[i] = [2]string{u.str(), u.str()}
	}
	if references >= 0 {
		r.References = make([]idempo.Resource, references)
	}
	for i := range r.References {
		r.References[i] = idempo.Resource{Type: u.str(), ID: u.str()}
	}
	last := int64(0)
	for _, t := range [...]*time.Time{&r.CreatedAt, &r.ClaimedAt, &r.StartedAt, &r.LeaseUntil, &r.DueAt, &r.ChangedAt, &r.CompletedAt,
		&r.IssuedUntil, &r.ExpiresAt, &r.GoneAt} {
		if n := u.num(); n != 0 {
			last += n >> 1
			*t = time.UnixMicro(last + yearOne).UTC()
		}
	}
	return r
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// length of s, -1 for nil.
func length[T any](s []T) int64 {
	if s == nil {
		return -1
	}
	return int64(len(s))
}

// unpacker reads from the front of s.
type unpacker struct{ s string }

func (u *unpacker) key() idempo.Key {
	return idempo.Key{Tenant: u.str(), Operation: u.str(), ID: u.str()}
}

func (u *unpacker) uint() (n uint64) {
	for shift := 0; ; shift += 7 {
		c := u.s[0]
		u.s = u.s[1:]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return n
		}
	}
}

func (u *unpacker) num() int64 {
	n := u.uint()
	return int64(n>>1) ^ -int64(n&1)
}

func (u *unpacker) str() string {
	n := u.uint()
	s := u.s[:n]
	u.s = u.s[n:]
	return s
}

func (u *unpacker) blob() []byte {
	n := u.uint()
	if n == 0 {
		return nil
	}
	p := make([]byte, n-1)
	u.s = u.s[copy(p, u.s):]
	return p
}
