package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// ProblemError is an error that is answered with a problem of its own. Rules.SnapshotFunc may return one.
type ProblemError struct{ Problem Problem }

// Error gives the problem's detail.
func (e *ProblemError) Error() string { return e.Problem.Detail }

// Inspect checks what Wrap checks before it claims, the caller and the syntax of the key, and then runs next as if
// unwrapped: for handlers whose far side guards itself. It declares no operation, reads no body and calls no store; a
// rule that takes the key from the body is an error. operation names the handler in the log.
func (m *Middleware) Inspect(operation string, rules Rules, next http.Handler) (http.Handler, error) {
	rules = mergeRules(rules, m.config.Rules)
	g := &guard{m: m, rules: rules, next: next}
	g.op.Name = operation
	var err, keyErr error
	g.methods, err = guardedMethods(rules.Methods)
	if g.keys, keyErr = newKeySource(rules); keyErr == nil && g.keys.needBody() {
		keyErr = errors.New("the key is taken from the body, which only a guard reads; name a header")
	}
	if err := errors.Join(err, keyErr); err != nil {
		return nil, joinedError(fmt.Sprintf("inspect %q", operation), err)
	}
	m.mu.Lock()
	m.guards = append(m.guards, g)
	m.mu.Unlock()
	return http.HandlerFunc(g.inspect), nil
}

// inspect goes through steps 1 to 5 of a guarded request, and through the drain.
func (g *guard) inspect(w http.ResponseWriter, r *http.Request) {
	r = withoutOwnHeaders(r, g.m.config.ReplayHeader)
	if !slices.Contains(g.methods, r.Method) {
		g.next.ServeHTTP(w, r)
		return
	}
	x := &exchange{g: g, w: w, r: r}
	defer x.close()
	key := x.readKey()
	if !x.step3(key) || !x.tenant() || !x.step5(key) {
		return
	}
	if x.entered = g.m.enter(); !x.entered {
		x.refuse("draining")
		return
	}
	g.next.ServeHTTP(w, r)
}
