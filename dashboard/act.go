package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// order is what somebody wants done to one key: of a form, or of a call of the API.
type order struct {
	Attempt  int64       `json:"attempt"` // that the decision was made on
	State    string      `json:"state"`   // that the decision was made on
	Reason   string      `json:"reason"`
	Evidence string      `json:"evidence,omitempty"`
	Confirm  string      `json:"confirm,omitempty"` // of a severe action: the reference
	DryRun   bool        `json:"dry_run,omitempty"`
	To       string      `json:"to,omitempty"`     // resolve: completed, failed, probe
	Status   int         `json:"status,omitempty"` // resolve to completed: of the answer
	Result   string      `json:"result,omitempty"` // resolve to completed: the answer
	Resource orderTarget `json:"resource,omitzero"`

	NothingHappened bool `json:"nothing_happened,omitempty"` // release
	Force           bool `json:"force,omitempty"`            // retry
	Tombstones      bool `json:"with_tombstones,omitempty"`  // purge
	InDoubt         bool `json:"include_in_doubt,omitempty"` // purge
}

// orderTarget is what a settled key made.
type orderTarget struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// orderOf reads an order from a form.
func orderOf(form url.Values) (order, error) {
	o := order{State: form.Get("state"), Reason: form.Get("reason"), Evidence: form.Get("evidence"), Confirm: strings.TrimSpace(form.Get("confirm")), To: form.Get("to"),
		Result: form.Get("result"), NothingHappened: form.Get("nothing_happened") != "", Force: form.Get("force") != "",
		Tombstones: form.Get("with_tombstones") != "", InDoubt: form.Get("include_in_doubt") != ""}
	var err error
	if o.Attempt, err = strconv.ParseInt(form.Get("attempt"), 10, 64); err != nil {
		return o, &fault{status: http.StatusBadRequest}
	}
	if s := strings.TrimSpace(form.Get("status")); s != "" && o.To == string(idempo.StateCompleted) {
		if o.Status, err = strconv.Atoi(s); err != nil {
			return o, badFilter("the status is a number from 100 to 599")
		}
	}
	if s := strings.TrimSpace(form.Get("resource")); s != "" && o.To == string(idempo.StateCompleted) {
		kind, id, ok := strings.Cut(s, ":")
		if !ok {
			return o, badFilter("what was made is type:id, as in charge:ch_91")
		}
		o.Resource = orderTarget{kind, id}
	}
	return o, nil
}

// result is the answer that calls get from now on.
func (o order) result() (idempo.Result, error) {
	r := idempo.Result{Status: o.Status, Resource: idempo.Resource{Type: o.Resource.Type, ID: o.Resource.ID}}
	if r.Status == 0 {
		r.Status = http.StatusOK
	}
	if r.Status < 100 || r.Status > 599 {
		return r, badFilter("the status is a number from 100 to 599")
	}
	if (r.Resource.Type == "") != (r.Resource.ID == "") || len(r.Resource.Type) > 255 || len(r.Resource.ID) > 255 {
		return r, badFilter("what was made is type:id, of at most 255 bytes each")
	}
	r.Failing = r.Status >= 400
	if o.Result != "" {
		r.Body = []byte(o.Result)
		kind := "text/plain; charset=utf-8"
		if json.Valid(r.Body) {
			kind = "application/json"
		}
		r.Header = [][2]string{{"Content-Type", kind}}
	}
	return r, nil
}

// do does an order.
func (v *visit) do(ctx context.Context, action operator.Action, ref string, o order) (operator.Changed, error) {
	if !utf8.ValidString(o.Reason) || !utf8.ValidString(o.Evidence) {
		return operator.Changed{}, badFilter("the reason is not text")
	}
	ops := v.h.config.Operator
	why := operator.Why{By: v.by, Target: operator.Target{Ref: ref}, On: operator.Seen{Attempt: o.Attempt, State: idempo.State(o.State)},
		Reason: o.Reason, Evidence: o.Evidence, Confirm: o.Confirm, DryRun: o.DryRun}
	if ref == "" {
		return operator.Changed{}, &operator.Error{Code: operator.CodeNotFound}
	}
	switch action {
	case operator.ActionResolve:
		p := operator.ResolveParams{Why: why, To: idempo.State(o.To), Probe: o.To == "probe"}
		if p.Probe {
			p.To = ""
		}
		if p.To == idempo.StateCompleted {
			var err error
			if p.Result, err = o.result(); err != nil {
				return operator.Changed{}, err
			}
		}
		return ops.Resolve(ctx, p)
	case operator.ActionRelease:
		return ops.Release(ctx, operator.ReleaseParams{Why: why, NothingHappened: o.NothingHappened})
	case operator.ActionRetry:
		return ops.Retry(ctx, operator.RetryParams{Why: why, Force: o.Force})
	case operator.ActionPurge:
		return ops.Purge(ctx, operator.PurgeParams{Why: why, Tombstones: o.Tombstones, InDoubt: o.InDoubt})
	}
	return operator.Changed{}, &fault{status: http.StatusNotFound}
}

// act does what a form says, and goes where its person looks next. It is not ended by a browser that goes away.
func (h *Handler) act(v *visit) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx()), 3*patience)
	defer cancel()
	ref, action := strings.ToLower(v.r.PathValue("ref")), operator.Action(v.r.PathValue("action"))
	if _, err := operator.ParseRef(ref); err != nil {
		return &operator.Error{Code: operator.CodeNotFound}
	}
	form := v.r.PostForm
	if form == nil { // a bearer call belongs to the API
		return &fault{status: http.StatusBadRequest}
	}
	o, err := orderOf(form)
	if err != nil {
		return err
	}
	if action == operator.ActionReveal {
		return v.reveal(ctx, ref, o, form.Get("as") == "file")
	}
	done, err := v.do(ctx, action, ref, o)
	h.hub.wake()
	if code := operator.CodeOf(err); code == operator.CodeMoved || code == operator.CodeWrongState {
		return v.stale(ctx, ref, err)
	}
	if err != nil {
		return err
	}
	to := h.config.Prefix + "/keys/" + ref + "?done=" + string(action)
	switch {
	case form.Get("from") == "doubt":
		to = h.config.Prefix + "/doubt?done=" + ref
	case done.Record.State == "":
		to = h.config.Prefix + "/audit?key=" + ref
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

// stale shows the key as it is now to somebody who decided on what it was.
func (v *visit) stale(ctx context.Context, ref string, cause error) error {
	p, err := v.keyPage(ctx, ref)
	if err != nil {
		return err
	}
	f := failureOf(cause)
	p.Moved = &f
	v.render(f.Status, "key", pageData{Title: f.Title, Nav: "keys", Body: p})
	return nil
}

// reveal shows a stored answer, as text on the page or as a file.
func (v *visit) reveal(ctx context.Context, ref string, o order, file bool) error {
	r, err := v.revealed(ctx, ref, o)
	v.h.hub.wake()
	if operator.CodeOf(err) == operator.CodeMoved {
		return v.stale(ctx, ref, err)
	}
	if err != nil {
		return err
	}
	if file {
		v.w.Header().Set("Content-Type", "application/octet-stream")
		v.w.Header().Set("Content-Disposition", `attachment; filename="`+ref+`.bin"`)
		_, _ = v.w.Write(r.Result.Body)
		return nil
	}
	p, err := v.keyPage(ctx, ref)
	if err != nil {
		return err
	}
	p.Answer = answerOf(r, o.Reason)
	v.render(http.StatusOK, "key", pageData{Title: "Key " + short(p.Ref), Nav: "keys", Body: p})
	return nil
}

func (v *visit) revealed(ctx context.Context, ref string, o order) (idempo.Record, error) {
	return v.h.config.Operator.Reveal(ctx, operator.RevealParams{Why: operator.Why{By: v.by, Target: operator.Target{Ref: ref},
		On: operator.Seen{Attempt: o.Attempt, State: idempo.State(o.State)}, Reason: o.Reason, Evidence: o.Evidence}})
}

// indented is a JSON text with its members on lines, nil if it cannot be.
func indented(body []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, body, "", "  ") != nil {
		return nil
	}
	return b.Bytes()
}
