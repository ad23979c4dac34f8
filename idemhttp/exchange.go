package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/idempo/idempo"
)

// What an attempt says to the engine where its answer is not kept.
var (
	errReleased  = errors.New("idemhttp: the handler's answer says that nothing happened")
	errUndone    = errors.New("idemhttp: the handler failed")
	errDeadline  = fmt.Errorf("idemhttp: the handler ran into its time limit: %w", context.DeadlineExceeded)
	errClient    = errors.New("idemhttp: the client is gone")
	errAnswerCut = errors.New("idemhttp: the answer is shorter than it declared")
)

// exchange is one request of a guarded method on its way through the guard. It is never reused: a handler that keeps its
// writer or body beyond its return holds a dead one.
type exchange struct {
	g *guard
	w http.ResponseWriter
	r *http.Request // as it came, without idempo's own headers

	key       idempo.Key
	principal string
	unique    []string
	body      spool
	read      bool // body is there
	payload   payload
	print     print
	snapshot  []byte
	past      bool   // step 5 passed: answers say what became of the request
	entered   bool   // counted by Drain
	release   func() // of the tenant's place

	call call
	rec  *recorder // of the present attempt
	own  marks
	stop func() bool // ends the tie to the client's connection
	ran  bool        // the handler was called
	hr   *http.Request
	url  url.URL     // of hr
	sent requestBody // of the first attempt
	kept recorder    // of the first attempt

	outer detached    // the context of the request without its end
	inner callContext // of the first attempt
}

// close gives back what the exchange holds, after a panic too.
func (x *exchange) close() {
	if x.stop != nil {
		x.stop()
	}
	if x.rec != nil {
		x.rec.free()
	}
	_ = x.sent.Close()
	x.body.close()
	if x.release != nil {
		x.release()
	}
	if x.entered {
		x.g.m.leave()
	}
}

// sentKey is the key of a request, as read.
type sentKey struct {
	id      string
	present bool
	err     error
}

func (x *exchange) readKey() (k sentKey) {
	k.id, k.present, k.err = x.g.keys.extract(x.r, &x.payload)
	return k
}

// admit goes through steps 3 to 8. It returns false where the request is answered.
func (x *exchange) admit() bool {
	late := x.g.keys.needBody() // then steps 3 and 5 come after 7
	var key sentKey
	if !late {
		if key = x.readKey(); !x.step3(key) {
			return false
		}
	}
	if !x.tenant() || !late && !x.step5(key) || !x.place() || !x.readBody() { // steps 4 to 7
		return false
	}
	if late {
		if key = x.readKey(); !x.step3(key) || !x.step5(key) {
			return false
		}
	}
	return !x.nested() && x.fingerprint() // step 8
}

// step3 lets a request without key pass where that is allowed, and refuses an upgrade with one.
func (x *exchange) step3(k sentKey) bool {
	sent := k.present || k.err != nil
	switch {
	case !sent && !x.g.keys.required:
		x.g.next.ServeHTTP(x.w, x.buffered())
		return false
	case sent && upgrade(x.r):
		x.refuse("upgrade_not_guarded")
		return false
	}
	return true
}

// step5 settles the key.
func (x *exchange) step5(k sentKey) bool {
	if k.err == nil && !k.present {
		k.err = x.g.keys.missing()
	}
	if k.err != nil {
		x.refuseFor(k.err)
		return false
	}
	x.key.Operation, x.key.ID = x.g.op.Name, k.id
	x.past = true
	return true
}

// readBody is step 7.
func (x *exchange) readBody() bool {
	if code := x.g.m.spools.readBody(&x.body, x.r, x.g.rules.maxBody()); code != "" {
		x.refuse(code)
		return false
	}
	x.read = true
	x.payload = payload{sent: x.body.content(), media: readMediaType(x.r.Header), coding: contentCoding(x.r.Header), maxInflated: x.g.rules.maxInflated()}
	return true
}

// tenant finds out whose key it is.
func (x *exchange) tenant() bool {
	tenant, principal, code := x.g.m.identity(x.r)
	if code != "" {
		x.refuse(code)
		return false
	}
	x.key.Tenant, x.principal = tenant, principal
	return true
}

// identity is the tenant of a request and, where PrincipalFunc is set, the principal; or the problem that stands in the way.
func (m *Middleware) identity(r *http.Request) (tenant, principal, code string) {
	tenant = "default"
	if m.config.TenantFunc != nil {
		var err error
		tenant, err = m.config.TenantFunc(r)
		switch {
		case errors.Is(err, ErrNoTenant), err == nil && tenant == "":
			return "", "", "tenant_missing"
		case err != nil:
			m.fault("the caller's tenant cannot be found out")
			return "", "", "tenant_unavailable"
		case !legalTenant(tenant):
			m.fault("TenantFunc gave a tenant that is over 255 bytes, not UTF-8 or holds control characters")
			return "", "", "tenant_unavailable"
		}
	}
	if m.config.PrincipalFunc != nil {
		var err error
		if principal, err = m.config.PrincipalFunc(r); err != nil || principal == "" {
			return "", "", "tenant_missing"
		}
	}
	return tenant, principal, ""
}

// legalTenant is the engine's rule, asked before the body is read. A tenant is never cut, folded or trimmed to fit.
func legalTenant(t string) bool {
	return t != "" && len(t) <= 255 && utf8.ValidString(t) &&
		!strings.ContainsFunc(t, func(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f })
}

// place takes a place among the requests that run.
func (x *exchange) place() bool {
	if x.entered = x.g.m.enter(); !x.entered {
		x.refuse("draining")
		return false
	}
	release, err := x.g.m.engine.Admit(x.key.Tenant)
	if err != nil {
		x.refuseFor(err)
		return false
	}
	x.release = release
	return true
}

// nested stands down where an outer guard already holds the key of this request: one record, and no refusal against itself.
func (x *exchange) nested() bool {
	outer := callOf(x.r.Context())
	switch {
	case outer == nil || outer.key.Tenant != x.key.Tenant || outer.key.ID != x.key.ID:
		return false
	case outer.guard != x.g.op.Guard:
		x.refuse("nested")
		return true
	}
	x.g.next.ServeHTTP(x.w, x.buffered())
	return true
}

// fingerprint computes what this request says, and which business identities it names.
func (x *exchange) fingerprint() bool {
	if len(x.g.unique) > 0 {
		identity, present, err := x.g.unique.read(x.r, &x.payload, 1, highestMaxKey)
		if err != nil {
			x.refuseFor(err)
			return false
		}
		if present { // else it has none, and its key alone counts
			x.unique = []string{identity}
		}
	}
	var err error
	if f := x.g.rules.SnapshotFunc; f != nil {
		if x.snapshot, err = f(x.r, x.key); err != nil {
			if own, ok := errors.AsType[*ProblemError](err); ok {
				own.Problem.KeyRef = x.g.m.engine.Ref(x.key, x.principal)
				x.send(own.Problem)
				return false
			}
			x.g.m.warn("SnapshotFunc refused a request", "operation", x.g.op.Name)
			x.refuse("malformed_request")
			return false
		}
	}
	if x.print, err = x.g.prints.print(x.r, &x.payload, x.key.Tenant); err != nil {
		x.refuseFor(err)
		return false
	}
	return true
}

// claim is steps 9 and 10: one engine call, and its answer.
func (x *exchange) claim() {
	g := x.g
	x.call.key, x.call.guard = x.key, g.op.Guard
	x.rec = &x.kept
	x.rec.outer, x.rec.spools, x.rec.limit = x.w, g.m.spools, g.rules.maxSpool()
	x.rec.leased, x.rec.stream = g.op.Guard == idempo.GuardLeased, g.rules.Stream
	x.outer = detached{values: x.r.Context(), cancelKey: g.m.cancelKey}
	var ctx context.Context = &x.outer
	if g.waits || g.rules.OnDisconnect == DisconnectCancel { // until the handler starts, or as long as it runs
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		x.stop = context.AfterFunc(x.r.Context(), func() { cancel(errClient) })
	}
	begun, err := g.m.engine.Do(ctx, idempo.Request{
		Key: x.key, Principal: x.principal, Recipe: x.print.recipe, DigestFunc: x.digest, Detail: x.print.detail,
		Unique: x.unique, Snapshot: x.snapshot, Wait: g.rules.Wait, Surface: "http", Trace: traceContext(x.r.Header),
	}, x.attempt)
	x.answer(begun, err)
}

// digest computes the fingerprint by the recipe of a record.
func (x *exchange) digest(recipe string) ([]byte, error) {
	if recipe == x.print.recipe {
		return x.print.sum, nil
	}
	return x.g.prints.by(recipe, x.r, &x.payload, x.key.Tenant)
}

// attempt runs the handler once under a claim. After a serialization failure it is called again and begins from nothing.
func (x *exchange) attempt(ctx context.Context, claim *idempo.Claim) (idempo.Result, error) {
	body, u, inner := &x.sent, &x.url, &x.inner
	if x.ran { // whoever still has those of the attempt before shares nothing with this one
		body, u, inner, x.rec = new(requestBody), new(url.URL), new(callContext), x.rec.next()
	} else {
		// From here on the work belongs to the key and not to the connection. A client that left before is not served.
		if x.stop != nil && x.g.rules.OnDisconnect != DisconnectCancel {
			x.stop()
		}
		if x.r.Context().Err() != nil {
			return idempo.Result{}, idempo.NothingHappened(errClient)
		}
	}
	x.ran = true
	x.call.reset()
	x.rec.begin()
	body.open(&x.body)
	*u = *x.r.URL
	*inner = callContext{ctx, &x.call}
	x.hr = x.request(inner, u, body)
	defer x.endAttempt(body)
	x.g.next.ServeHTTP(x.rec, x.hr)
	whole := x.rec.end()
	if ctx.Err() != nil {
		switch err := context.Cause(ctx); {
		case errors.Is(err, errClient):
			return idempo.Result{}, errClient
		case !errors.Is(err, idempo.ErrLeaseLost): // who lost its lease may still be in time
			return idempo.Result{}, errDeadline
		}
	}
	if x.rec.tooLarge {
		return idempo.Result{}, errAnswerTooBig
	}
	if !whole {
		return idempo.Result{}, errAnswerCut
	}
	return x.settle(claim)
}

// endAttempt takes body and writer away from a handler that returned, panicked or left by Goexit.
func (x *exchange) endAttempt(body *requestBody) {
	_ = body.Close()
	x.rec.cut()
	if form := x.hr.MultipartForm; form != nil && form != x.r.MultipartForm {
		_ = form.RemoveAll() // net/http does so for the request it made itself only
	}
}

// settle turns a whole answer into what the engine keeps.
func (x *exchange) settle(claim *idempo.Claim) (idempo.Result, error) {
	outcome, mode, resource, retention := x.call.said()
	if outcome == "" {
		outcome = x.g.rules.Outcomes[x.rec.status]
	}
	if outcome == "" {
		outcome = outcomeOf(x.rec.status, x.rec.header, x.g.op.Guard)
	}
	switch outcome {
	case OutcomeRelease:
		if err := x.call.failure(); err != nil {
			return idempo.Result{}, errors.Join(errReleased, err)
		}
		return idempo.Result{}, idempo.NothingHappened(errReleased)
	case OutcomeInDoubt:
		return idempo.Result{}, errUndone
	}
	return x.keep(claim, keeping{failing: outcome == OutcomeKeepFailure, mode: mode, resource: resource, retention: retention})
}

// request is what the handler sees: the request as it came, on the claim's context, with the buffered body, and without
// Accept-Encoding, since the answer is kept for clients that accept something else. Each attempt gets its own copy, so that
// nothing a handler changes reaches the next one.
func (x *exchange) request(ctx context.Context, u *url.URL, body *requestBody) *http.Request {
	r := x.r.WithContext(ctx)
	r.Header = maps.Clone(x.r.Header)
	delete(r.Header, "Accept-Encoding")
	r.URL = u
	r.Body, r.GetBody = body, nil
	return r
}

// buffered is the request with its body to be read from the beginning, for a handler that runs unguarded after all.
func (x *exchange) buffered() *http.Request {
	if !x.read {
		return x.r
	}
	r := new(http.Request)
	*r = *x.r
	x.sent.open(&x.body)
	r.Body = &x.sent
	return r
}

// traceContext is the caller's W3C trace context, or "" where it is not well formed.
func traceContext(h http.Header) string {
	lines := h["Traceparent"]
	if len(lines) != 1 || len(lines[0]) != 55 {
		return ""
	}
	for i := range 55 {
		c := lines[0][i]
		switch i {
		case 2, 35, 52:
			if c != '-' {
				return ""
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return ""
			}
		}
	}
	return lines[0]
}
