package sqlkit

import (
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// Digests returns every digest that p claims once, the record's own first.
func Digests(p idempo.AcquireParams) []string {
	ids := make([]string, 0, 1+len(p.Aliases)+len(p.Unique))
	ids = append(ids, p.Key.ID)
	for _, more := range [][]string{p.Aliases, p.Unique} {
		for _, id := range more {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// JudgeAll judges p on recs, every record that its digests stand for: whichever refuses decides. With write the first
// one is to be replaced, and Acquired.Record stands in its place, also where its digest is another one of p's. Over are
// records of other keys that are gone and only hold one of p.Unique: they are to be removed first.
func JudgeAll(p idempo.AcquireParams, recs []idempo.Record, now time.Time) (a idempo.Acquired, over []idempo.Record, write bool, err error) {
	first := true
	for _, rec := range recs {
		if _, live := rec.Effective(now); !live && p.Foreign(rec) {
			over = append(over, rec)
			continue
		}
		one, write, err := p.Judge(rec, true, now)
		if err != nil || !write {
			return one, nil, false, err
		}
		if first {
			a, first = one, false
			a.Record.Key = rec.Key
		}
	}
	if first {
		a, write, err = p.Judge(idempo.Record{}, false, now)
		return a, over, write, err
	}
	return a, over, true, nil
}

// Since is when r became due for a taker.
func Since(r idempo.Record) time.Time {
	if r.DueAt.IsZero() {
		return r.LeaseUntil
	}
	return r.DueAt
}

// Micros makes r's times what a table keeps, so that what is returned equals what is stored.
func Micros(r *idempo.Record) {
	for _, t := range []*time.Time{&r.ClaimedAt, &r.StartedAt, &r.LeaseUntil, &r.DueAt, &r.CreatedAt, &r.ChangedAt,
		&r.CompletedAt, &r.IssuedUntil, &r.ExpiresAt, &r.GoneAt} {
		if !t.IsZero() {
			*t = time.UnixMicro(t.UnixMicro()).UTC()
		}
	}
}
