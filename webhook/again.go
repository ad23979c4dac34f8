package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// What comes again: it is recognised by reading alone, counted in memory and written behind.

const (
	noteEvery   = 5 * time.Second
	maxNoted    = 10_000           // events that are counted at once; more are not
	reviveAfter = 10 * time.Minute // a dead event runs again at most so often because it came again
)

// known tells whether every event of the request was stored before, unchanged: then nothing is begun.
func (in *ingest) known(ctx context.Context) bool {
	fates := make([]fate, len(in.got.Delivery.Events))
	for i := range in.got.Delivery.Events {
		ev := &in.got.Delivery.Events[i]
		if len(ev.IDs) == 0 || ev.Parked != "" {
			return false
		}
		b, done, err := in.r.cfg.Engine.Known(ctx, idempo.Request{Key: idempo.Key{Tenant: in.e.tenant, Operation: in.e.operation, ID: ev.IDs[0].Key},
			Input: [][]byte{ev.Content}, Surface: "webhook"})
		switch {
		case err != nil || !done:
			return false // the transaction says it, whatever it is
		case b.Verdict == idempo.VerdictReplay:
			fates[i] = fate{word: "duplicate", of: b.Record.Result.Resource.ID}
		case b.Verdict == idempo.VerdictExpired:
			fates[i] = fate{word: "late_duplicate", of: b.Record.Result.Resource.ID}
		default:
			return false
		}
	}
	in.fates = fates
	in.note()
	return true
}

// note counts what the request repeats.
func (in *ingest) note() {
	for i, f := range in.fates {
		if f.word == "duplicate" || f.word == "late_duplicate" {
			in.e.again.add(inbox.ReceiptKey(in.e.v.source.Name, in.got.Delivery.Events[i].IDs[0].Key))
		}
	}
}

// sightings are events that came again since they were last written.
type sightings struct {
	mu   sync.Mutex
	seen map[string]int64 // by the key of their receipt
}

func (s *sightings) add(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int64{}
	}
	if _, there := s.seen[key]; there || len(s.seen) < maxNoted {
		s.seen[key]++
	}
}

func (s *sightings) take() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// noting writes behind what came again, until ctx ends, and once more then.
func (r *Receiver) noting(ctx context.Context) {
	t := time.NewTicker(noteEvery)
	defer t.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-t.C:
		}
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteEvery)
		for name, e := range r.sources {
			if err := e.noted(work); err != nil {
				r.cfg.Logger.Warn("webhook: what came again could not be counted", "source", name, "error", err)
			}
		}
		cancel()
	}
}

// noted writes the counts of a source in one batch. An event that is dead and came again runs again, since the sender would
// otherwise be told that all is well for ever.
func (e *endpoint) noted(ctx context.Context) error {
	seen := e.again.take()
	if len(seen) == 0 {
		return nil
	}
	var list []inbox.Sighting
	for key, n := range seen {
		list = append(list, inbox.Sighting{Tenant: e.tenant, Key: key, Times: n})
	}
	if err := e.in.Note(ctx, list); err != nil {
		return err
	}
	for key := range seen {
		rs, err := e.in.Receipts(ctx, inbox.ListParams{Tenant: e.tenant, Key: key, WithoutBody: true})
		if err != nil {
			return err
		}
		for _, r := range rs {
			mine := r.Reason == inbox.ReasonAttempts || r.Reason == inbox.ReasonPermanent || r.Reason == ReasonGone
			if r.Status != inbox.StatusDead || !mine || r.Now.Sub(r.ChangedAt) < reviveAfter {
				continue
			}
			if _, err := e.in.Retry(ctx, inbox.Selection{IDs: []int64{r.Seq}}, false); err != nil {
				return err
			}
		}
	}
	return nil
}
