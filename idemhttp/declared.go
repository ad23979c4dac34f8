package idemhttp

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/idempo/idempo"
)

// Declared is what one wrapped handler promises its callers, with every default and profile filled in: the source of a contract
// document. It is a copy; changing it changes nothing.
type Declared struct {
	// Operation is as the engine completed it. Of a handler made by Inspect only Name is set.
	Operation idempo.Operation
	// Rules have KeyHeaders, KeyPointer or KeyFrom, MinKey, MaxKey, Wait and MismatchStatus filled in.
	Rules Rules
	// Methods that are guarded; others pass.
	Methods []string
	// KeyedBy is what a key belongs to, and what two equal keys must share to be one: tenant, principal, operation, key.
	KeyedBy []string
	// ReplayHeader is the name of the marker that replays carry.
	ReplayHeader string
	// Inspected says that the far side guards itself: key and caller are checked here, and nothing else is promised.
	Inspected bool
}

// Declared returns what is wrapped and inspected so far, in the order of Wrap. Safe for concurrent use.
func (m *Middleware) Declared() []Declared {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Declared, 0, len(m.guards))
	for _, g := range m.guards {
		out = append(out, g.declared())
	}
	return out
}

func (g *guard) declared() Declared {
	d := Declared{Operation: g.op, Rules: g.rules, Methods: slices.Clone(g.methods), ReplayHeader: g.m.config.ReplayHeader, Inspected: g.op.Guard == ""}
	if !g.m.config.GlobalTenant {
		d.KeyedBy = append(d.KeyedBy, "tenant")
	}
	if g.m.config.PrincipalFunc != nil {
		d.KeyedBy = append(d.KeyedBy, "principal")
	}
	d.KeyedBy = append(d.KeyedBy, "operation", "key")
	r := &d.Rules
	r.KeyHeaders, r.KeyPointer, r.KeyFrom, _ = g.keys.profile(g.rules)
	if len(r.KeyFrom) > 0 || r.KeyPointer != "" {
		r.KeyHeaders = nil
	}
	r.MinKey, r.MaxKey = g.keys.min, g.keys.max
	r.Key = cmp.Or(r.Key, KeyRequired)
	r.Fingerprint = cmp.Or(r.Fingerprint, FingerprintCanonical)
	r.MismatchStatus = cmp.Or(r.MismatchStatus, http.StatusUnprocessableEntity)
	r.Result = cmp.Or(r.Result, ResultFull)
	if g.waits {
		r.Wait = cmp.Or(r.Wait, g.m.engine.DefaultWait())
	}
	return d
}

// Outcome says what becomes of an answer with this status and no Retry-After, where the handler itself says nothing.
func (d Declared) Outcome(status int) Outcome {
	if o, ok := d.Rules.Outcomes[status]; ok {
		return o
	}
	return outcomeOf(status, nil, d.Operation.Guard)
}
