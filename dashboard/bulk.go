package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// bulkPage shows what a bulk would do, or what it did.
type bulkPage struct {
	Filter  filter
	Do      string // the choice, as the form says it
	Text    string // what it does
	Reason  string
	Command string
	Preview bool
	Got     operator.Bulked
	Back    string
	Now     time.Time
}

// bulkChoice is one action on many keys.
func bulkChoice(do string) (c operator.Change, text, flags string, ok bool) {
	switch do {
	case "resolve-failed":
		return operator.Change{Action: operator.ActionResolve, To: idempo.StateFailed}, "Settle: nothing happened. The next call with each key runs.", "resolve --failed", true
	case "resolve-completed":
		return operator.Change{Action: operator.ActionResolve, To: idempo.StateCompleted, Done: idempo.CompleteParams{Result: idempo.Result{Status: http.StatusOK}}},
			"Settle: it happened. Calls with each key get status 200 without a body.", "resolve --completed --status 200", true
	case "release":
		return operator.Change{Action: operator.ActionRelease, To: idempo.StateInDoubt}, "Release from their owners. What has started is in doubt then.", "release", true
	case "release-nothing":
		return operator.Change{Action: operator.ActionRelease, To: idempo.StateFailed}, "Release: nothing happened. The next call with each key runs.", "release --nothing-happened", true
	case "retry":
		return operator.Change{Action: operator.ActionRetry}, "Let the next call with each failed key run again. Successes are left alone.", "retry", true
	case "purge":
		return operator.Change{Action: operator.ActionPurge}, "Remove stored answers. That it happened is remembered.", "purge", true
	}
	return operator.Change{}, "", "", false
}

// bulk shows what one action on a whole filter would do, and does it once that is confirmed. Each batch is committed with its audit
// rows; a browser that goes away ends it after the batch that runs.
func (h *Handler) bulk(v *visit) error {
	form := v.r.PostForm
	if form == nil {
		return &fault{status: http.StatusBadRequest}
	}
	f, err := filterOf(form)
	if err != nil {
		return err
	}
	do, text, flags, ok := bulkChoice(form.Get("do"))
	if !ok {
		return badFilter("say what to do")
	}
	ctx, cancel := context.WithTimeout(v.ctx(), time.Minute)
	defer cancel()
	p := bulkPage{Filter: f, Do: form.Get("do"), Text: text, Reason: form.Get("reason"), Preview: form.Get("go") == "",
		Command: "idempo keys " + flags + f.flags() + " --reason " + shell(form.Get("reason")), Back: link(h.config.Prefix+"/keys", f.Query())}
	if p.Reason == "" {
		return badFilter("a reason is required")
	}
	p.Got, err = h.config.Operator.Bulk(ctx, operator.BulkParams{By: v.by, Find: f.params, Stuck: f.Stuck, Do: do, Reason: p.Reason, DryRun: p.Preview})
	h.hub.wake()
	if err != nil {
		return err
	}
	if len(p.Got.Sample) > 0 {
		p.Now = p.Got.Sample[0].Now
	}
	title := "Done"
	if p.Preview {
		title = "Before it is done"
	}
	v.render(http.StatusOK, "bulk", pageData{Title: title, Nav: "keys", Body: p})
	return nil
}

// Hidden are the fields that carry the filter on.
func (p bulkPage) Hidden() url.Values { return p.Filter.Query() }
