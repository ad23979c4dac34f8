package cli

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo/operator"
)

// search is what to look for where a key is named by what it made or by its trace; nil: it is named by itself.
func (s showFlags) search(args []string) (*operator.SearchParams, error) {
	if s.resource == "" && s.trace == "" {
		return nil, nil
	}
	if len(args) > 0 || s.tenant != "" || s.operation != "" || s.id != "" || s.resource != "" && s.trace != "" {
		return nil, usage("--resource and --trace look for a key by themselves: give one of them, and no other name")
	}
	p := operator.SearchParams{Trace: s.trace}
	if s.trace != "" && len(s.trace) < 8 {
		return nil, usage("--trace: at least 8 characters")
	}
	if s.resource != "" {
		var err error
		if p.Resource, err = parseResource("--resource", s.resource); err != nil {
			return nil, err
		}
	}
	return &p, nil
}

// searched looks through the keys, the newest first, until something is found, and says how far it has looked. One key is
// returned; of several, which are listed, none.
func (a *app) searched(ctx context.Context, d *desk, p operator.SearchParams) (ref string, err error) {
	p.By = d.by
	var back time.Time
	far := func() string { // how far it has looked
		if back.IsZero() {
			return "still looking, from key to key"
		}
		return "looked back to " + a.moment(back)
	}
	shown := time.Now()
	for {
		got, err := d.Search(ctx, p)
		if err != nil {
			if ctx.Err() != nil && !back.IsZero() {
				a.err.printf("stopped; looked back to %s\n", a.moment(back))
			}
			return "", err
		}
		if len(got.Records) == 1 {
			return got.Records[0].Ref(), nil
		}
		for i, r := range got.Records {
			if err := a.printListed(r, i == 0); err != nil {
				return "", err
			}
		}
		if len(got.Records) > 1 {
			if !got.Back.IsZero() {
				a.err.printf("looked back to %s\n", a.moment(got.Back))
			}
			return "", nil
		}
		if got.Next == "" {
			return "", notFound()
		}
		back, p.After = got.Back, got.Next
		switch wait := time.Since(shown); {
		case terminal(a.p.Err) && wait > 100*time.Millisecond:
			a.err.printf("\r%s", far())
			shown = time.Now()
		case wait > quiet:
			a.err.printf("%s\n", far())
			shown = time.Now()
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			a.err.printf("stopped; %s\n", far())
			return "", ctx.Err()
		}
	}
}
