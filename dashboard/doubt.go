package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// doubtPage is what waits for a person, the oldest first, and the one that is being settled.
type doubtPage struct {
	Queue   []waiting
	More    bool // than the queue holds: it is sorted as far as it was read
	Now     time.Time
	Key     *keyPage // being settled; nil: there is none
	Doubt   waiting
	Place   int // of Key in the queue, from 1
	Done    string
	DoneRef string
	Export  string
	Command string
}

// waiting is a key in doubt.
type waiting struct {
	Record idempo.Record
	Since  time.Time
	Age    time.Duration
}

// maxQueue is how many keys in doubt are read to be sorted by age.
const maxQueue = 1000

// queue returns the keys in doubt, the oldest first.
func (v *visit) queue(ctx context.Context) (all []waiting, more bool, err error) {
	page, err := v.h.config.Operator.List(ctx, operator.ListParams{By: v.by, Find: operator.FindParams{State: idempo.StateInDoubt, Limit: maxQueue}})
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Records {
		since := operator.DoubtfulSince(r)
		all = append(all, waiting{r, since, max(r.Now.Sub(since), 0)})
	}
	slices.SortStableFunc(all, func(a, b waiting) int { return a.Since.Compare(b.Since) })
	return all, page.Next != "", nil
}

func (h *Handler) doubt(v *visit) error {
	ctx, cancel := context.WithTimeout(v.ctx(), patience)
	defer cancel()
	q := v.r.URL.Query()
	queue, more, err := v.queue(ctx)
	if err != nil {
		return err
	}
	p := doubtPage{Queue: queue, More: more, Export: h.config.Prefix + "/keys.ndjson?state=in_doubt", Command: "idempo keys list --state in_doubt"}
	if len(queue) > 0 {
		p.Now = queue[0].Record.Now
		i := slices.IndexFunc(queue, func(w waiting) bool { return w.Record.Ref() == strings.ToLower(q.Get("key")) })
		i = max(i, 0)
		p.Doubt, p.Place = queue[i], i+1
		key, err := v.keyPage(ctx, queue[i].Record.Ref())
		if err != nil && operator.CodeOf(err) != operator.CodeNotFound {
			return err
		}
		if err == nil {
			key.From = "doubt"
			p.Key = &key
		}
	}
	if ref := q.Get("done"); ref != "" {
		if shown, err := v.show(ctx, ref); err == nil {
			p.DoneRef, p.Done = shown.Record.Ref(), doneText(string(operator.ActionResolve), shown.Record)
		}
	}
	v.render(http.StatusOK, "doubt", pageData{Title: "In doubt", Nav: "doubt", Doubt: int64(len(queue)), Body: p})
	return nil
}

// Shown are those of the queue that the page lists.
func (p doubtPage) Shown() []waiting { return p.Queue[:min(len(p.Queue), 100)] }
