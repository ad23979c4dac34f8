package operator

import (
	"context"
	"errors"
	"strings"

	"github.com/idempo/idempo"
)

// BulkParams do one action to every key that a filter finds.
type BulkParams struct {
	By       Principal
	Find     FindParams // Find.Limit does not count; Find.After goes on where a bulk before it ended
	Stuck    bool
	Do       Change // action, To, Done.Result, Force, Tombstones, InDoubt
	Reason   string // required
	Evidence string
	Confirm  string // of a severe bulk: the name of the action
	Limit    int    // of keys that are changed; 0: 1,000
	Rate     int    // keys a second at most; 0: 5,000
	DryRun   bool   // says what would be done, and does nothing
	// ProgressFunc is told after every batch. It must not block.
	ProgressFunc func(Bulked)
	// Stop, once closed, ends the bulk after the batch that runs. The end of the context ends it at once.
	Stop <-chan struct{}
}

// Bulked is what a bulk has done so far.
type Bulked struct {
	Looked   int // records that the filter has found
	OK       int
	Failed   int             // refused when it came to them: they had moved
	Skipped  int             // their state does not allow the action
	Failures []Changed       // of Failed, at most 1,000
	Sample   []idempo.Record // of a dry run: the first that would be changed, at most 5
	Severe   string          // of a dry run: what is severe about it, "" if nothing is
	Next     string          // cursor that goes on: the limit was reached, or it was stopped; "": done
	Stopped  bool
}

// Bulk does one action to every key that the filter finds, in batches, each committed with its audit rows. Keys whose state
// does not allow the action are passed over. A bulk that ends early goes on from Bulked.Next; done again from the beginning it
// does nothing twice. On error what Bulked counts is done, and of the batch that ran it is not known.
func (s *Service) Bulk(ctx context.Context, p BulkParams) (Bulked, error) {
	changer, ok := s.store.(Changer)
	if !ok {
		return Bulked{}, unsupported(p.Do.Action, "change a key")
	}
	b := &bulk{s: s, p: p, changer: changer, do: p.Do}
	b.p.Limit, b.p.Rate = orDefault(p.Limit, 1000), orDefault(p.Rate, 5000)
	b.do.Actor, b.do.Role, b.do.Channel, b.do.Reason, b.do.Evidence = p.By.Actor, p.By.Role, p.By.Channel, p.Reason, p.Evidence
	switch {
	case !p.By.may(p.Do.Action):
		return b.got, b.refused(ctx, &Error{Action: p.Do.Action, Code: CodeForbidden})
	case p.DryRun:
	case strings.TrimSpace(p.Reason) == "" || p.By.Actor == "":
		return b.got, b.refused(ctx, invalid(p.Do.Action, "a reason is required, and who does it"))
	case len(p.Reason) > maxReason || len(p.Evidence) > maxReason:
		return b.got, b.refused(ctx, invalid(p.Do.Action, "reason and evidence have at most 4,096 bytes each"))
	}
	err := b.run(ctx)
	if e, ok := errors.AsType[*Error](err); ok {
		err = b.refused(ctx, e)
	}
	return b.got, err
}

func orDefault(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// refused writes down that a bulk was refused, which is about no key, and returns why.
func (b *bulk) refused(ctx context.Context, why *Error) error {
	if !b.p.DryRun && b.p.By.reads() {
		c := Change{Action: b.do.Action, Actor: b.do.Actor, Role: b.do.Role, Channel: b.do.Channel, Evidence: b.do.Evidence, Refused: why.Code}
		if c.Reason = b.do.Reason; len(c.Reason) > maxReason || len(c.Evidence) > maxReason {
			c.Reason, c.Evidence = "", ""
		}
		if _, err := b.s.change(ctx, b.changer, []Change{c}); err != nil {
			return err
		}
	}
	if why.Code == CodeForbidden {
		return &Error{Code: CodeNotFound}
	}
	return why
}

// bulk is one Bulk at work.
type bulk struct {
	s       *Service
	p       BulkParams
	do      Change
	changer Changer
	got     Bulked
	batch   []Change
}

func (b *bulk) run(ctx context.Context) (err error) {
	list := ListParams{By: b.p.By, Find: b.p.Find, Stuck: b.p.Stuck}
	list.Find.Limit = 500
	w := walk[idempo.Record]{dry: b.p.DryRun, limit: b.p.Limit, rate: b.p.Rate, stop: b.p.Stop, take: b.take, do: b.flush,
		cursor: func(r idempo.Record) string { return Cursor(r.Key) },
		page: func(ctx context.Context, after string) ([]idempo.Record, string, error) {
			list.Find.After = after
			page, err := b.s.List(ctx, list)
			return page.Records, page.Next, err
		}}
	b.got.Next, b.got.Stopped, err = w.run(ctx, b.p.Find.After)
	return err
}

// take puts r into the batch if the action is for it.
func (b *bulk) take(r idempo.Record) (bool, error) {
	b.got.Looked++
	c := b.do
	c.Key, c.Attempt, c.State, c.Retention = r.Key, r.Attempt, r.State, b.s.config.Retention
	if c.Action == ActionResolve && c.To == idempo.StateCompleted {
		if err := b.s.settle(r, b.p.Do.Done.Result, &c); err != nil {
			return false, err
		}
	}
	if _, write, err := c.Judge(r, true, r.Now); err != nil || !write {
		b.got.Skipped++
		return false, nil
	}
	severe := Severe(c, r)
	if severe != "" {
		b.got.Severe = severe
	}
	if severe != "" && !b.p.DryRun && b.p.Confirm != string(c.Action) {
		return false, &Error{Action: c.Action, Code: CodeConfirmNeeded, KeyRef: r.Ref(), State: r.State, Attempt: r.Attempt, Hint: severe, Flag: "--confirm " + string(c.Action)}
	}
	if b.p.DryRun {
		b.got.OK++
		if len(b.got.Sample) < maxSample {
			b.got.Sample = append(b.got.Sample, r)
		}
		return true, nil
	}
	b.batch = append(b.batch, c)
	return true, nil
}

// flush does the batch.
func (b *bulk) flush(ctx context.Context) error {
	if len(b.batch) == 0 {
		return nil
	}
	done, err := b.s.change(ctx, b.changer, b.batch)
	if err != nil {
		return err
	}
	for _, d := range done {
		if d.Err == nil {
			b.got.OK++
			continue
		}
		b.got.Failed++
		if len(b.got.Failures) < maxFailures {
			b.got.Failures = append(b.got.Failures, d)
		}
	}
	b.batch = b.batch[:0]
	if b.p.ProgressFunc != nil {
		b.p.ProgressFunc(b.got)
	}
	return nil
}
