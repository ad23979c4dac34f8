package webhook

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Step is one line of an [Explanation].
type Step struct {
	Name  string // source headers secret time code handshake id duplicate order answer
	State string // ok, fail or skip
	Text  string
}

// Explanation says why a request is accepted or refused. It holds no secret and no code, expected or received.
type Explanation struct {
	Steps    []Step
	Accepted bool
	Reason   Reason
	// Near are the changes of request or configuration that would make a refused code fit, the likeliest first.
	Near []string
}

// String is a line for each step, what would fit, and the verdict.
func (e Explanation) String() string {
	var b strings.Builder
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "%s: %s %s\n", s.Name, s.State, s.Text)
	}
	for _, n := range e.Near {
		fmt.Fprintf(&b, "near: %s\n", n)
	}
	if e.Accepted {
		b.WriteString("verdict: accepted\n")
	} else {
		fmt.Fprintf(&b, "verdict: refused (%s)\n", e.Reason)
	}
	return b.String()
}

// Explain takes a request the way of [Accept] and says what was found at each step. Of a refused one it tries near misses:
// another body that a proxy may have made of it, another secret of others, another form, encoding, URL or header.
//
// others are sources whose secrets may have been mixed up with those of src, such as test and live.
func Explain(src *Verifier, req Request, now time.Time, others ...*Verifier) Explanation {
	x := explainer{v: src, req: &req, now: now, others: others}
	return x.run()
}

type explainer struct {
	v      *Verifier
	req    *Request
	now    time.Time
	others []*Verifier
	out    Explanation
}

func (x *explainer) add(name, state, format string, args ...any) {
	x.out.Steps = append(x.out.Steps, Step{name, state, fmt.Sprintf(format, args...)})
}

func (x *explainer) run() Explanation {
	p := &x.v.profile
	x.add("source", "ok", "%s, provider %s, family %s", x.v.source.Name, x.v.source.Provider, p.Family)
	c := check{v: x.v, req: x.req, now: x.now}
	if reply := c.greet(); reply != nil {
		x.greeted(reply)
		return x.out
	}
	accepted, err := Accept(x.v, *x.req, x.now, p.MaxBody)
	if err == nil {
		x.accepted(accepted)
		return x.out
	}
	reason, refused := IsRefusal(err)
	x.out.Reason = reason
	if !refused {
		x.out.Reason = "certificate not reachable, ask again"
	}
	at := failedStep(reason)
	detail := x.detail(err)
	for _, step := range []string{"headers", "secret", "time", "code"} {
		switch {
		case step == at:
			x.add(step, "fail", "%s", detail)
		case slices.Index([]string{"headers", "secret", "time", "code"}, step) < slices.Index([]string{"headers", "secret", "time", "code"}, at):
			x.passed(step)
		case step == "code" && at == "time":
			x.codeBesideTime()
		default:
			x.add(step, "skip", "not reached")
		}
	}
	for _, step := range []string{"handshake", "id", "duplicate", "order"} {
		x.add(step, "skip", "not reached")
	}
	x.add("answer", "ok", "%d", x.refusedStatus(refused))
	if at == "code" || at == "headers" {
		x.out.Near = x.near()
	}
	return x.out
}

func (x *explainer) refusedStatus(refused bool) int {
	if refused {
		return http.StatusUnauthorized
	}
	return http.StatusServiceUnavailable
}

// detail is the place a refusal speaks of; its texts hold no secret.
func (x *explainer) detail(err error) string {
	text := err.Error()
	return strings.TrimPrefix(strings.TrimPrefix(text, "webhook "+x.v.source.Name+": "), string(x.out.Reason)+": ")
}

// failedStep is the step to which a reason belongs.
func failedStep(r Reason) string {
	switch r {
	case ReasonMissingHeader, ReasonDuplicateHeader, ReasonMalformedHeader, ReasonUnknownVersion:
		return "headers"
	case ReasonNoSecret:
		return "secret"
	case ReasonMalformedTime, ReasonTooOld, ReasonTooNew:
		return "time"
	}
	return "code"
}

// passed describes a step before the one that failed.
func (x *explainer) passed(step string) {
	switch step {
	case "headers":
		x.add(step, "ok", "all that the profile reads are there, once each")
	case "secret":
		x.secrets()
	case "time":
		x.time(x.raw().verdict)
	}
}

func (x *explainer) secrets() {
	var list []string
	for _, s := range x.v.source.Secrets {
		text := s.String()
		if !s.until.IsZero() && !x.now.Before(s.until) {
			text += ", ended " + s.until.UTC().Format(time.RFC3339)
		}
		list = append(list, text)
	}
	if len(list) == 0 {
		x.add("secret", "skip", "the provider has none")
		return
	}
	x.add("secret", "ok", "%s", strings.Join(list, "; "))
}

func (x *explainer) time(v Verdict) {
	switch {
	case v.SignedAt.IsZero():
		x.add("time", "skip", "none is signed")
	case x.v.tolerance == 0:
		x.add("time", "ok", "signed %s, no window", v.SignedAt.UTC().Format(time.RFC3339))
	default:
		x.add("time", "ok", "signed %s, %s, window %s", v.SignedAt.UTC().Format(time.RFC3339), apart(v.Skew), x.v.tolerance)
	}
}

func apart(d time.Duration) string {
	seconds := strconv.FormatFloat(d.Abs().Seconds(), 'f', -1, 64)
	switch {
	case d > 0:
		return seconds + " s ago"
	case d < 0:
		return seconds + " s ahead"
	}
	return "0 s ago"
}

// judged is a verification whose verdict is kept even where it was refused.
type judged struct {
	verdict Verdict
	err     error
}

func (x *explainer) raw() judged { return x.try(x.v, *x.req) }

// try verifies without a window, so that an old capture can still be told apart.
func (x *explainer) try(v *Verifier, req Request) (j judged) {
	defer func() {
		if p := recover(); p != nil {
			j.err = fmt.Errorf("the verifier failed: %T", p)
		}
	}()
	copied := v.copy()
	copied.tolerance = 0
	c := check{v: copied, req: &req, now: x.now}
	j.verdict, j.err = copied.scheme.check(&c)
	return j
}

// copy is the same verifier, to be changed for a try.
func (v *Verifier) copy() *Verifier {
	c := &Verifier{source: v.source, profile: v.profile, content: v.content, label: v.label, tolerance: v.tolerance, scheme: v.scheme, certs: v.certs}
	c.keys.Store(v.keys.Load())
	c.token.Store(v.token.Load())
	return c
}

// codeBesideTime says whether the code alone would be right.
func (x *explainer) codeBesideTime() {
	j := x.raw()
	if j.err == nil {
		x.add("code", "ok", "%s, secret %s: only the time is off", j.verdict.Scheme, j.verdict.SecretID)
		x.out.Near = append(x.out.Near, fmt.Sprintf("the code is right and the time is not: signed %s; a late delivery, a replay, or a clock that is off by %s s",
			j.verdict.SignedAt.UTC().Format(time.RFC3339), strconv.FormatFloat(j.verdict.Skew.Abs().Seconds(), 'f', -1, 64)))
		return
	}
	x.add("code", "skip", "not reached, and it would not fit either")
}

func (x *explainer) greeted(reply *Reply) {
	x.out.Accepted = reply.Status < 300
	for _, step := range []string{"headers", "secret", "time", "code"} {
		x.add(step, "skip", "a handshake that is not signed, or no delivery")
	}
	switch {
	case reply.Status == http.StatusMethodNotAllowed:
		x.out.Reason = "method"
		x.add("handshake", "fail", "%s is not taken", x.req.Method)
	case reply.Status >= 300:
		x.out.Reason = ReasonWrongToken
		x.add("handshake", "fail", "its parameters are missing, repeated or wrong, or verify_token is not set")
	default:
		x.add("handshake", "ok", "answered")
	}
	for _, step := range []string{"id", "duplicate", "order"} {
		x.add(step, "skip", "no event")
	}
	x.add("answer", "ok", "%d", reply.Status)
}

func (x *explainer) accepted(a Accepted) {
	p := &x.v.profile
	x.out.Accepted = true
	x.passed("headers")
	x.secrets()
	x.time(a.Verdict)
	by := ""
	if a.Verdict.SecretID != "" {
		by = ", secret " + a.Verdict.SecretID
	}
	x.add("code", "ok", "%s%s", a.Verdict.Scheme, by)
	if a.Reply != nil {
		x.add("handshake", "ok", "answered")
		for _, step := range []string{"id", "duplicate", "order"} {
			x.add(step, "skip", "no event")
		}
		x.add("answer", "ok", "%d", a.Reply.Status)
		return
	}
	x.add("handshake", "skip", "an ordinary delivery")
	var ids, lanes []string
	state := "ok"
	for _, e := range a.Delivery.Events {
		for _, id := range e.IDs {
			class := "unsigned"
			if id.Signed {
				class = "signed"
			}
			ids = append(ids, id.Text+" ("+class+")")
		}
		if e.Parked != "" {
			state = "fail"
			ids = append(ids, "parked "+e.Parked)
		}
		lanes = append(lanes, fmt.Sprintf("lane %q version %q", e.Lane, e.Version))
	}
	if len(a.Delivery.Events) == 0 {
		ids, lanes = []string{"no event"}, []string{"no event"}
	}
	x.add("id", state, "%s", brief(ids))
	x.add("duplicate", "skip", "needs the store")
	x.add("order", "ok", "%s", brief(lanes))
	x.add("answer", "ok", "%d", p.Success.Status)
}

// brief shows the first of many.
func brief(list []string) string {
	if len(list) > 5 {
		return strings.Join(list[:5], ", ") + fmt.Sprintf(" and %d more", len(list)-5)
	}
	return strings.Join(list, ", ")
}
