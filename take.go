package idempo

import (
	"slices"
	"time"
)

// Judge decides whether Take hands out the stored record r at now, on the store's clock: nobody holds it, it is of
// p.Operations, and it is due. Due are an enqueued record from its DueAt on, also again where the one who took it
// vanished before the start or may run it again; of OnCrashProbe, a started one whose owner vanished, and a doubt whose
// next probe is due. With ok the returned record is to be written; it keeps the start mark, and DueAt, by which a
// vanished taker's record is due again. Judge does no I/O and shares nothing.
func (p TakeParams) Judge(r Record, now time.Time) (c Record, ok bool) {
	eff, live := r.Effective(now)
	if !live || r.Format > rowFormat || !slices.Contains(p.Operations, r.Key.Operation) {
		return Record{}, false
	}
	enqueued := !r.DueAt.IsZero() && !r.DueAt.After(now)
	switch {
	case eff.State == StateInDoubt:
		ok = r.OnCrash == OnCrashProbe && !r.DueAt.After(now)
	case !r.Lapsed(now):
	case r.StartedAt.IsZero(), r.OnCrash == OnCrashRerun:
		ok = enqueued
	default:
		ok = r.OnCrash == OnCrashProbe
	}
	if !ok {
		return Record{}, false
	}
	c = r.Clone()
	c.State, c.Token, c.Owner, c.Attempt = StatePending, p.Token, p.Owner, r.Attempt+1
	c.ClaimedAt, c.ChangedAt, c.Now, c.LeaseUntil = now, now, now, now.Add(p.Lease)
	return c, true
}
