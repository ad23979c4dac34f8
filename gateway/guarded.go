package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

// OperationPrefix stands before the name of every operation of a gateway in the store, so that a service on the same
// store never meets the gateway's claim in place of its own.
const OperationPrefix = "gateway."

// New makes a gateway over engine, declares its operations there, and starts its health checks, which [Gateway.Close]
// ends. The error lists every mistake; those of the configuration are *[FieldError]. engine may be nil where no route
// is guarded.
func New(engine *idempo.Engine, c Config) (*Gateway, error) {
	g, err := assemble(c)
	if err != nil {
		return nil, err
	}
	g.engine = engine
	return g.ready()
}

// ready makes the routes of an assembled gateway and starts what runs beside them.
func (g *Gateway) ready() (*Gateway, error) {
	var err error
	engine := g.engine
	if g.config.guarded() {
		if engine == nil {
			return nil, errors.New("gateway: a route is guarded, and there is no engine")
		}
		if g.guards, err = idemhttp.New(engine, g.middleware()); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	if err := g.addRoutes(g.guard); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.run()
	return g, nil
}

func (g *Gateway) middleware() idemhttp.Config {
	c := idemhttp.Config{DocsURL: g.config.DocsURL, Logger: g.config.Log,
		TenantFunc: func(r *http.Request) (string, error) {
			who := visitOf(r.Context())
			if who == nil || errors.Is(who.err, errNoTenant) {
				return "", idemhttp.ErrNoTenant
			}
			return who.caller.tenant, who.err
		}}
	if g.config.Tenant.Principal != "" {
		c.PrincipalFunc = func(r *http.Request) (string, error) {
			if who := visitOf(r.Context()); who != nil {
				return who.caller.principal, who.err
			}
			return "", idemhttp.ErrNoTenant
		}
	}
	return c
}

// guard makes the handler of a guarded route.
func (g *Gateway) guard(rt *route) (http.Handler, error) {
	rules := rt.rules()
	if !rt.config.leased() {
		return g.guards.Inspect(rt.config.Operation, rules, rt.pass)
	}
	if rt.config.Probe != nil {
		t, err := parseProbe(rt.config.Probe.Request, wildcards(rt.config.Match))
		if err != nil {
			return nil, err
		}
		rt.probe = &probe{g: g, rt: rt, template: t, config: *rt.config.Probe}
	}
	rules.SnapshotFunc = rt.snapshot
	if g.successor {
		if err := g.engine.Redeclare(rt.operation()); err != nil {
			return nil, err
		}
	}
	return g.guards.Wrap(rt.operation(), rules, http.HandlerFunc(rt.exchange))
}

// operation is what the engine is told of the route.
func (rt *route) operation() idempo.Operation {
	c := rt.config
	op := idempo.Operation{Name: OperationPrefix + c.Operation, Guard: idempo.GuardLeased, OnCrash: idempo.OnCrash(c.OnCrash),
		DownstreamHonoursKey: c.UpstreamHonoursKey, RepeatHarmless: c.RepeatHarmless, Issued: c.Issued, IssuedFor: c.IssuedFor,
		Lease: c.Lease, MaxRun: c.MaxRun, Retention: c.Retention, Tombstone: c.Tombstone, Horizons: c.Horizons, MaxResult: c.MaxResult}
	if rt.probe != nil {
		op.ProbeFunc, op.ProbeEvery = rt.probe.ask, rt.config.Probe.Every
	}
	return op
}

// rules are how the route's requests are read and its answers kept.
func (rt *route) rules() idemhttp.Rules {
	c := rt.config
	r := idemhttp.Rules{
		Profile: c.Key.Profile, KeyHeaders: c.Key.Headers, KeyPointer: c.Key.Pointer, KeyFrom: c.Key.From, MinKey: c.Key.Min, MaxKey: c.Key.Max,
		KeyPattern: c.Key.Pattern, AttemptHeaderAsKey: c.Key.AttemptHeaderAsKey, Methods: c.Methods, Wait: c.Wait, MaxBody: c.MaxBody,
		MaxInflated: c.MaxInflated, MaxSpool: c.MaxSpool, Fingerprint: idemhttp.FingerprintMode(c.Fingerprint), Exclude: c.Exclude,
		Include: c.Include, Defaults: c.Defaults, Headers: c.Headers, PathValues: c.PathValues,
		MismatchDetail: idemhttp.DetailMode(c.MismatchDetail), MismatchStatus: c.MismatchStatus, Result: idemhttp.ResultMode(c.Result),
		PointerStatus: c.PointerStatus, Redact: c.Redact, KeepHeaders: c.KeepHeaders, Stream: c.Stream,
		DenyHeaders: slices.Concat(c.DenyHeaders, foreignMarkers()),
		OnStoreDown: idemhttp.StoreDown(c.OnStoreDown), UniqueBy: c.UniqueBy, StatusURL: pathOf(c.Status),
	}
	if !rt.keyRequired() {
		r.Key = idemhttp.KeyOptional
	}
	for status, word := range c.Outcomes {
		if r.Outcomes == nil {
			r.Outcomes = map[int]idemhttp.Outcome{}
		}
		r.Outcomes[status] = idemhttp.Outcome(word)
	}
	return r
}

func (rt *route) keyRequired() bool { return rt.config.Key.Required == nil || *rt.config.Key.Required }

// visit is what a guarded request carries from the gateway through the guard to the upstream and back.
type visit struct {
	caller caller
	err    error // why there is no caller
	w      *answerWriter
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value((*visitKey)(nil)).(*visit)
	return v
}

// serveGuarded finds out who the caller is and hands over to the guard.
func (rt *route) serveGuarded(w http.ResponseWriter, r *http.Request, guard http.Handler) {
	v := &visit{}
	asks := rt.asksTenant(r)
	if b := incomingOf(r.Context()); b != nil {
		b.whole = asks // keyed: read before anything is claimed
	}
	if asks {
		v.caller, v.err = rt.g.tenants.identify(r)
		if a, ok := errors.AsType[*answerError](v.err); ok {
			a.write(w)
			return
		}
	}
	v.w = &answerWriter{ResponseWriter: w}
	if b := incomingOf(r.Context()); b != nil && r.ProtoMajor == 1 {
		v.w.body = b
	}
	r = r.WithContext(context.WithValue(r.Context(), (*visitKey)(nil), v))
	if rt.config.AnswerWithin > 0 {
		rt.serveWithin(v, r, guard)
		return
	}
	guard.ServeHTTP(v.w, r)
}

// asksTenant tells the requests whose caller the guard will ask for: those with a key, or that must have one.
func (rt *route) asksTenant(r *http.Request) bool {
	if rt.always {
		return true
	}
	methods := rt.config.Methods
	if r.Method != http.MethodPost && r.Method != http.MethodPatch && !slices.Contains(methods, r.Method) {
		return false
	}
	if rt.keyRequired() || rt.config.Key.Pointer != "" || len(rt.config.Key.From) > 0 || rt.config.Key.Profile == "square" || rt.config.Key.Profile == "aws" {
		return true
	}
	return slices.ContainsFunc(rt.keyHeaders, func(name string) bool { return r.Header[name] != nil })
}

// write passes an authentication endpoint's own refusal on.
func (e *answerError) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, e.header)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(e.status)
	_, _ = w.Write(e.body) // the caller may be gone
}

// snapshot is what the claim keeps for a probe. It is also where an open breaker refuses what would have to be sent:
// before any claim, and after everything a record can answer.
func (rt *route) snapshot(r *http.Request, key idempo.Key) ([]byte, error) {
	if rt.up.breaker.open() {
		if err := rt.resting(r, key); err != nil {
			return nil, err
		}
	}
	if rt.probe == nil {
		return nil, nil
	}
	return rt.probe.snapshot(r, key)
}

func (rt *route) resting(r *http.Request, key idempo.Key) error {
	principal := ""
	if v := visitOf(r.Context()); v != nil {
		principal = v.caller.principal
	}
	rec, err := rt.g.engine.LookupFor(r.Context(), key, principal)
	if e, ok := errors.AsType[*idempo.Error](err); ok && e.Code != "not_found" {
		return nil // the claim will meet the same store, and has the words for it
	}
	switch rec.State {
	case idempo.StateCompleted, idempo.StateExpired, idempo.StateInDoubt:
		return nil
	case idempo.StatePending:
		if !rec.Lapsed(rec.Now) {
			return nil
		}
	}
	return &idemhttp.ProblemError{Problem: rt.restingProblem()}
}

func (rt *route) restingProblem() idemhttp.Problem {
	p := idemhttp.NewProblem("upstream_resting")
	p.RetryAfter = int(max(time.Second, rt.up.breaker.rest()+time.Second-1) / time.Second)
	return p
}
