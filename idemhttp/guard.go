package idemhttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

// guard is one wrapped handler. It is immutable but for what it said once to the log.
type guard struct {
	m       *Middleware
	op      idempo.Operation // as the engine completed it
	rules   Rules
	keys    *keySource
	prints  *fingerprinter
	unique  keyParts
	headers headerRules
	redact  redaction
	methods []string
	next    http.Handler
	link    string // Link of the status endpoint, or ""
	waits   bool   // duplicates wait for the running one

	advised sync.Once // H41
}

// Wrap declares op at the engine and guards next by it. One operation may be wrapped several times, with the same settings:
// its routes then share one key space. The error lists every mistake in op and rules, each with what to write instead; nothing
// is declared then.
func (m *Middleware) Wrap(op idempo.Operation, rules Rules, next http.Handler) (http.Handler, error) {
	rules = mergeRules(rules, m.config.Rules)
	g := &guard{m: m, rules: rules, next: next, headers: newHeaderRules(rules.DenyHeaders, rules.KeepHeaders, m.config.ReplayHeader)}
	var errs []error
	if next == nil {
		errs = append(errs, errors.New("handler is nil"))
	}
	var err error
	g.methods, err = guardedMethods(rules.Methods)
	errs = append(errs, err)
	errs = append(errs, rules.check(op)...)
	g.redact, err = newRedaction(rules.Redact)
	errs = append(errs, err)
	g.keys, err = newKeySource(rules)
	errs = append(errs, err)
	g.prints, err = newFingerprinter(m.engine, rules)
	errs = append(errs, err)
	g.unique, err = parseKeyParts("UniqueBy", rules.UniqueBy)
	errs = append(errs, err)
	if err := m.declare(op, errors.Join(errs...)); err != nil {
		return nil, joinedError(fmt.Sprintf("wrap operation %q", op.Name), err)
	}
	for _, o := range m.engine.Operations() {
		if o.Name == op.Name {
			g.op = o
		}
	}
	g.waits = rules.Wait > 0 || m.engine.DefaultWait() > 0
	if rules.StatusURL != "" {
		g.link = "<" + rules.StatusURL + `>; rel="status"`
	}
	m.mu.Lock()
	m.guards = append(m.guards, g)
	m.mu.Unlock()
	g.announce()
	return g, nil
}

// declare declares op, unless there are mistakes already: then it only adds what the engine has to say about op.
func (m *Middleware) declare(op idempo.Operation, mistakes error) error {
	if mistakes == nil {
		return m.engine.Declare(op)
	}
	return errors.Join(mistakes, m.engine.Check(op))
}

// announce names the settings that promise less than the others.
func (g *guard) announce() {
	if g.rules.OnStoreDown == StoreDownRun {
		g.m.warn("while the store is down requests run unguarded", "operation", g.op.Name, "setting", "OnStoreDown")
	}
	if g.rules.Fingerprint == FingerprintNone {
		g.m.warn("a key answers any request: nothing is compared", "operation", g.op.Name, "setting", "Fingerprint")
	}
	for _, text := range g.keys.warnings {
		g.m.warn(text, "operation", g.op.Name)
	}
}

// guardedMethods are POST, PATCH and what the rules add.
func guardedMethods(more []string) ([]string, error) {
	methods := []string{http.MethodPost, http.MethodPatch}
	var errs []error
	for _, name := range more {
		switch name {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
			errs = append(errs, fmt.Errorf("Methods: %s is never guarded; leave it out", name))
		default:
			if !writable(name, "") || strings.ToUpper(name) != name {
				errs = append(errs, fmt.Errorf("Methods: %q is no method; write it as in PUT", name))
			}
			methods = append(methods, name)
		}
	}
	return slices.Compact(methods), errors.Join(errs...)
}

// check returns every mistake in the rules that concern answers and limits.
func (r Rules) check(op idempo.Operation) (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	for _, n := range []struct {
		name string
		v    int64
	}{{"Wait", int64(r.Wait)}, {"MaxBody", r.MaxBody}, {"MaxInflated", r.MaxInflated}, {"MaxSpool", r.MaxSpool}} {
		if n.v < 0 {
			bad("%s is negative; leave it zero for the default", n.name)
		}
	}
	if r.Wait > time.Minute {
		bad("Wait %v is over 60s; shorten it", r.Wait)
	}
	if op.Guard == idempo.GuardAtomic {
		if r.Stream {
			bad("Stream lets an answer leave before its commit; drop it, or set Guard to idempo.GuardLeased")
		}
		if r.OnStoreDown == StoreDownRun {
			bad("StoreDownRun needs an effect outside the store; drop it, or set Guard to idempo.GuardLeased")
		}
	}
	switch r.MismatchStatus {
	case 0, http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusConflict:
	default:
		bad("MismatchStatus %d; set 422, 400 or 409", r.MismatchStatus)
	}
	switch {
	case r.PointerStatus != 0 && r.PointerStatus != http.StatusGone && r.PointerStatus != http.StatusSeeOther:
		bad("PointerStatus %d; set 410 or 303", r.PointerStatus)
	case r.PointerStatus == http.StatusSeeOther && r.Result != ResultPointer:
		bad("PointerStatus 303 is for answers of which only the pointer is kept; set Result to ResultPointer")
	}
	oneOf := func(field, value string, allowed ...string) {
		if value != "" && !slices.Contains(allowed, value) {
			bad("%s is %q; one of %s", field, value, strings.Join(allowed, ", "))
		}
	}
	oneOf("Result", string(r.Result), string(ResultFull), string(ResultPointer))
	oneOf("MismatchDetail", string(r.MismatchDetail), string(DetailPointers), string(DetailNone))
	oneOf("OnStoreDown", string(r.OnStoreDown), string(StoreDownRefuse), string(StoreDownRun))
	oneOf("OnDisconnect", string(r.OnDisconnect), string(DisconnectContinue), string(DisconnectCancel))
	for status, outcome := range r.Outcomes {
		switch {
		case status < 200 || status > 599:
			bad("Outcomes: %d is no status of an answer; 200 to 599", status)
		case !outcome.known():
			bad("Outcomes[%d] is %q; one of keep, keep_failure, release, in_doubt", status, string(outcome))
		case outcome == OutcomeInDoubt && op.Guard == idempo.GuardAtomic:
			bad("Outcomes[%d] is in_doubt, but an atomic operation always knows; set OutcomeRelease", status)
		}
	}
	for _, name := range slices.Concat(r.DenyHeaders, r.KeepHeaders) {
		if !writable(name, "") {
			bad("%q is no header name", name)
		}
	}
	return errs
}

func (r Rules) maxBody() int64     { return cmp.Or(r.MaxBody, 1<<20) }
func (r Rules) maxInflated() int64 { return cmp.Or(r.MaxInflated, 4*r.maxBody()) }
func (r Rules) maxSpool() int64    { return cmp.Or(r.MaxSpool, 64<<20) }

// ServeHTTP guards one request. The first check that fails answers; nothing after it happens.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = withoutOwnHeaders(r, g.m.config.ReplayHeader) // step 1
	if !slices.Contains(g.methods, r.Method) {        // step 2
		g.passMethod(w, r)
		return
	}
	x := &exchange{g: g, w: w, r: r}
	defer x.close()
	if x.admit() {
		x.claim()
	}
}

// passMethod runs a request whose method is not guarded. One that carries a key all the same, and would change something, is
// told that it was not guarded: its caller believes otherwise.
func (g *guard) passMethod(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
	default:
		if g.keySent(r) {
			w.Header().Set(headerStatus, "unguarded")
			g.m.passed(r.Context(), g.op.Name, "declared")
			g.advised.Do(func() {
				g.m.warn("a request with a key runs unguarded; add its method to Methods", "operation", g.op.Name, "method", r.Method)
			})
		}
	}
	g.next.ServeHTTP(w, r)
}

// keySent says whether a request carries a header that would be its key.
func (g *guard) keySent(r *http.Request) bool {
	_, present, err := g.keys.line(r.Header)
	return present || err != nil
}

func (g *guard) keyHeaders() []string { return g.keys.headers }

// upgrade says whether a request asks for another protocol.
func upgrade(r *http.Request) bool {
	if r.Header.Get("Upgrade") == "" {
		return false
	}
	for _, value := range r.Header["Connection"] {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(textproto.TrimString(token), "upgrade") {
				return true
			}
		}
	}
	return false
}
