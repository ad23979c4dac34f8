package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

// wholeAnswer is how much of an answer is read before any of it is passed on: a cut in a longer one is seen as a cut by
// the first caller too.
const wholeAnswer = 1 << 20

// exchange is the handler behind the guard: it sends the request once and says what is known afterwards. Outside a claim
// nothing is kept, and the request passes through.
func (rt *route) exchange(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	claim := idempo.FromContext(ctx)
	if claim == nil {
		rt.pass.ServeHTTP(w, r)
		return
	}
	begin(ctx, claim)
	if _, ok := rt.up.breaker.admit(); !ok {
		rt.answerProblem(w, r, claim, rt.restingProblem(), idemhttp.OutcomeRelease)
		return
	}
	// The mark belongs to a probe: a "not happened" of before does not speak of this send.
	if rt.probe != nil && claim.Attempt() > 1 {
		if err := claim.Refer(ctx, referSent, strconv.FormatInt(claim.Attempt(), 10)); err != nil {
			rt.up.breaker.forget()
			rt.answerProblem(w, r, claim, idemhttp.NewProblem("store_unavailable"), idemhttp.OutcomeRelease)
			return
		}
	}
	began := time.Now()
	res, class, err := rt.send(ctx, w, r, claim)
	var body *answerBody
	if class == ClassAnswered {
		if body, err = readAnswer(res.Body); err != nil {
			class = ClassUnknown
		}
	}
	rt.g.observe(Event{Operation: rt.config.Operation, Upstream: rt.up.name, Class: class, Took: time.Since(began)})
	switch class {
	case ClassAnswered:
		rt.up.breaker.done(res.StatusCode < 500)
		rt.answer(w, r, claim, res, body)
	case ClassNotSent:
		rt.up.breaker.done(false)
		rt.answerProblem(w, r, claim, failureProblem(class, err), idemhttp.OutcomeRelease)
	default:
		rt.up.breaker.done(false)
		rt.answerProblem(w, r, claim, rt.unknownProblem(err), idemhttp.OutcomeInDoubt)
	}
}

// send makes the one call.
func (rt *route) send(ctx context.Context, w http.ResponseWriter, r *http.Request, claim *idempo.Claim) (*http.Response, Class, error) {
	key := ""
	switch rt.config.UpstreamKey {
	case "derive":
		key = claim.Derive("")
	case "forward":
		for _, name := range rt.keyHeaders {
			if v := r.Header.Get(name); v != "" {
				key = v
			}
		}
	}
	early := &interim{w: w}
	defer early.end()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: early.pass})
	small := rewindable(r)
	sent := false
	res, class, err := rt.up.once(ctx, rt.up.config.FreshConnections, func(ctx context.Context, t *target) (*http.Request, error) {
		if sent && small == nil && r.Body != nil && r.Body != http.NoBody {
			return nil, errors.New("part of the body is gone")
		}
		sent = true
		out := rt.g.guardedRequest(ctx, r, rt, t, key)
		if small != nil && out.Body != nil {
			out.Body = io.NopCloser(bytes.NewReader(small))
		}
		return out, nil
	})
	if err == nil && (res.StatusCode < 200 || !validNames(res.Header)) {
		res.Body.Close()
		return nil, ClassUnknown, errors.New("the upstream's answer is not valid")
	}
	return res, class, err
}

// validNames refuses header names that net/http lets pass and that another reader could split: "A b".
func validNames(h http.Header) bool {
	for name := range h {
		if !validName(name) {
			return false
		}
	}
	return true
}

// rewindable is the body of r where it is small, so that it can be sent to the next address; else nil, and r is as it was.
func rewindable(r *http.Request) []byte {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength < 0 || r.ContentLength > 64<<10 {
		return nil
	}
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, b); err != nil {
		return nil // the guard has counted it; this cannot be
	}
	return b
}

// answerBody is an upstream's answer, read to its end, or as far as wholeAnswer and then to be streamed.
type answerBody struct {
	head []byte
	rest io.ReadCloser // nil: head is all
}

func readAnswer(body io.ReadCloser) (*answerBody, error) {
	head, err := io.ReadAll(io.LimitReader(body, wholeAnswer+1))
	if err != nil {
		body.Close()
		return nil, err
	}
	if len(head) > wholeAnswer {
		return &answerBody{head: head, rest: body}, nil
	}
	return &answerBody{head: head}, body.Close()
}

// answer passes the upstream's answer to the guard.
func (rt *route) answer(w http.ResponseWriter, r *http.Request, claim *idempo.Claim, res *http.Response, body *answerBody) {
	rt.instructions(r, claim, res, body)
	removeHopByHop(res.Header)
	rt.g.cors.merge(r, res.Header)
	h := w.Header()
	maps.Copy(h, res.Header)
	announced := make([]string, 0, len(res.Trailer))
	for name := range res.Trailer {
		announced = append(announced, name)
	}
	if len(announced) > 0 {
		h["Trailer"] = []string{strings.Join(announced, ", ")}
	}
	w.WriteHeader(res.StatusCode)
	_, err := w.Write(body.head)
	if body.rest != nil {
		_, err = io.Copy(w, body.rest)
		body.rest.Close()
	}
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		// A part is in the caller's hands: what cannot be taken back is cut off, and the claim is in doubt.
		panic(http.ErrAbortHandler)
	}
	for name, values := range res.Trailer {
		if len(announced) > 0 && contains(announced, name) {
			h[name] = values
		} else {
			h[http.TrailerPrefix+name] = values
		}
	}
}

func contains(list []string, s string) bool {
	return slices.Contains(list, s)
}

// instructions does what the upstream says about its answer, and takes that out of it.
func (rt *route) instructions(r *http.Request, claim *idempo.Claim, res *http.Response, body *answerBody) {
	ctx, h := r.Context(), res.Header
	if markers := markersOf(h); markers != nil {
		if v := visitOf(ctx); v != nil && v.w != nil {
			v.w.foreign = markers
		}
		rt.advised.Do(func() {
			rt.g.log.Info("the upstream marks its answers itself; consider guard: upstream for this route", "operation", rt.config.Operation)
		})
		switch h.Get("Idempotency-Status") {
		case "in_progress":
			_ = idemhttp.SetOutcome(ctx, idemhttp.OutcomeRelease)
		case "in_doubt":
			_ = idemhttp.SetOutcome(ctx, idemhttp.OutcomeInDoubt)
		}
	}
	if rule := rt.config.Resource; rule.ID != "" && body.rest == nil {
		if id, ok := pointText(body.head, rule.ID); ok && len(id) <= 255 {
			idemhttp.SetResource(ctx, rule.Type, id)
		}
	}
	bad := 0
	take := func(name string, use func(string) error) {
		values := h[name]
		delete(h, name)
		if len(values) == 0 {
			return
		}
		if len(values) > 1 || use(values[0]) != nil {
			bad++
		}
	}
	take("Idempo-Outcome", func(s string) error { return idemhttp.SetOutcome(ctx, idemhttp.Outcome(s)) })
	take("Idempo-Result", func(s string) error { return idemhttp.SetResult(ctx, idemhttp.ResultMode(s)) })
	take("Idempo-Retention", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n <= 0 {
			return errors.New("not a number of seconds")
		}
		return idemhttp.SetRetention(ctx, time.Duration(n)*time.Second)
	})
	take("Idempo-Resource", func(s string) error {
		kind, id, ok := strings.Cut(s, "/")
		if !ok || kind == "" || id == "" || len(kind) > 255 || len(id) > 255 {
			return errors.New("not type/id")
		}
		idemhttp.SetResource(ctx, kind, id)
		return nil
	})
	if bad > 0 {
		rt.g.ignored.Add(int64(bad))
		rt.g.log.Warn("ill-formed Idempo- headers of an upstream ignored", "operation", rt.config.Operation, "key_ref", claim.Ref(), "count", bad)
	}
}

// answerProblem answers with a problem of ours and says what becomes of the claim.
func (rt *route) answerProblem(w http.ResponseWriter, r *http.Request, claim *idempo.Claim, p idemhttp.Problem, o idemhttp.Outcome) {
	_ = idemhttp.SetOutcome(r.Context(), o) // both outcomes are legal for a leased operation
	p.KeyRef = claim.Ref()
	rt.g.writeProblem(w, r, p)
}

// unknownProblem says that it may have happened, and whether asking again will tell.
func (rt *route) unknownProblem(err error) idemhttp.Problem {
	p := failureProblem(ClassUnknown, err)
	switch rt.config.OnCrash {
	case "probe":
		p.Retryable, p.RetryAfter = true, int(max(time.Second, rt.config.Probe.Every)/time.Second)
	case "rerun":
		p.Retryable, p.RetryAfter = true, 1
	default:
		p.Retryable = false
	}
	return p
}
