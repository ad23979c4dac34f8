package config

import (
	"strings"

	"github.com/idempo/idempo/gateway"
)

// combine refuses values that are fine by themselves and wrong together. Each problem names both places.
func (r *reader) combine(root *value) {
	r.combineStore(root.at("store"))
	lease := root.at("lease")
	if d, renew := lease.at("duration"), lease.at("renew"); renew.set && 2*renew.duration() >= d.duration() {
		r.both(renew, d, "must be under half of the lease (%s)", FormatDuration(d.duration()))
	}
	keep := root.at("retention")
	result := keep.at("result")
	r.combineRetention(result, result, keep.at("tombstone"), keep.at("horizons"))
	admin, token := root.at("listen").at("admin"), root.at("metrics").at("token")
	if !loopback(admin.text) && token.text == "" {
		r.both(admin, token, "an address beyond loopback needs a token: metrics and health are open otherwise")
	}
	if front := root.at("listen").at("gateway"); front.text == admin.text && !strings.HasSuffix(front.text, ":0") {
		r.both(admin, front, "one address for two listeners")
	}
	r.combineDashboard(root)
	r.combineSecurity(root.at("security"))
	r.combineGateway(root)
	r.combineWebhooks(root)
	r.combineOutbox(root)
}

func (r *reader) combineSecurity(security *value) {
	encryption := security.at("encryption_keys")
	for _, list := range []*value{security.at("digest_keys"), encryption} {
		ids := map[string]*value{}
		for _, k := range list.members {
			id := k.at("id")
			if other := ids[id.text]; other != nil {
				r.both(id, other, "id %q twice", id.text)
			}
			ids[id.text] = id
		}
	}
	if require := security.at("require_encryption"); require.isTrue() && len(encryption.members) == 0 {
		r.both(require, encryption, "there is no key to encrypt with: name one")
	}
}

// both reports a problem at a that b is part of.
func (r *reader) both(a, b *value, format string, args ...any) {
	if r.suspect(a) || r.suspect(b) {
		return
	}
	p := r.problem(a.line, a.col, a.path, format, args...)
	if a.line == 0 && b.line > 0 {
		p.Line, p.Col = b.line, b.col
	}
	if p.Line == 0 {
		p.File, p.Col = max(a.origin, b.origin), 0
	}
	p.Message += "; see " + b.where()
	r.problems = append(r.problems, p)
}

// suspect says whether v, something in it or something around it could not be read: a judgement on it would be noise.
func (r *reader) suspect(v *value) bool {
	for _, p := range r.bad {
		if p == v.path || strings.HasPrefix(p, v.path+".") || strings.HasPrefix(p, v.path+"[") ||
			strings.HasPrefix(v.path, p+".") || strings.HasPrefix(v.path, p+"[") {
			return true
		}
	}
	return false
}

func (r *reader) at(v *value, format string, args ...any) {
	if r.suspect(v) {
		return
	}
	r.problems = append(r.problems, r.problem(v.line, v.col, v.path, format, args...))
}

func (r *reader) combineStore(store *value) {
	var first *value
	for _, name := range []string{"sqlite", "postgres", "mysql"} {
		next := store.at(name)
		switch {
		case !next.set:
		case first == nil:
			first = next
		case next.line >= first.line:
			r.both(next, first, "a second store: give one")
		default:
			r.both(first, next, "a second store: give one")
		}
	}
}

// combineRetention checks one level of retention settings: that of the file, or that of a route, whose retention falls back to
// the file's. Horizons without a retention beside them make the retention as long as the longest of them.
func (r *reader) combineRetention(result, fallback, tombstone, horizons *value) {
	longest := result
	if !result.set && len(horizons.members) == 0 {
		longest = fallback
	}
	for _, h := range horizons.members {
		if result.set && h.duration() > result.duration() {
			r.both(h, result, "a retry may come later than the answer is kept (%s)", FormatDuration(result.duration()))
		}
		if h.duration() > longest.duration() {
			longest = h
		}
	}
	if tombstone.set && tombstone.duration() < longest.duration() {
		r.both(tombstone, longest, "shorter than the retention (%s): a late retry would run again", FormatDuration(longest.duration()))
	}
}

// combineGateway lets package gateway judge what it is told, and finds the lines of what it refuses.
func (r *reader) combineGateway(root *value) {
	gw := root.at("gateway")
	if !gw.set {
		return
	}
	for _, route := range gw.at("routes").members {
		r.combineRoute(root, route)
	}
	for _, e := range fieldErrors(gatewayConfig(root).Validate()) {
		a, b := gw.nearest(e.Path), gw.nearest(e.Other)
		if e.Path == "routes" && !gw.at("routes").set {
			continue // serve --upstream makes the route; serve without any refuses to start
		}
		if b != nil && b.line > a.line {
			a, b = b, a
		}
		if strings.HasSuffix(e.Path, ".upstream") {
			e.Problem += r.hint(a.text, gw.at("upstreams").memberNames())
		}
		n := len(r.problems)
		if b == nil {
			r.at(a, "%s", e.Problem)
		} else {
			r.both(a, b, "%s", e.Problem)
		}
		if len(r.problems) > n && b == nil {
			r.problems[n].Path = join("gateway", e.Path) // the line may be that of a place above it
		}
	}
}

func fieldErrors(err error) (out []*gateway.FieldError) {
	switch e := err.(type) { //nolint:errorlint // walks a joined error part by part
	case nil:
	case *gateway.FieldError:
		out = append(out, e)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			out = append(out, fieldErrors(part)...)
		}
	default:
		out = append(out, &gateway.FieldError{Problem: err.Error()})
	}
	return out
}

// nearest returns the value at a path below v, or the closest place above it that stands in the file. nil for "".
func (v *value) nearest(p string) *value {
	if p == "" {
		return nil
	}
	best := v
	for _, m := range v.members {
		rest, ok := strings.CutPrefix(p, m.name)
		if !ok || (rest != "" && rest[0] != '.' && rest[0] != '[') || !m.set {
			continue
		}
		best = m
		if rest = strings.TrimPrefix(rest, "."); rest != "" {
			best = m.nearest(rest)
		}
	}
	return best
}

func (v *value) memberNames() (names []string) {
	for _, m := range v.members {
		names = append(names, m.name)
	}
	return names
}

// combineRoute compares what a route says with what the file says for all routes.
func (r *reader) combineRoute(root, route *value) {
	r.combineRetention(route.at("retention"), root.at("retention").at("result"), route.at("tombstone"), route.at("horizons"))
	if lease := route.at("lease"); lease.set {
		if renew := root.at("lease").at("renew"); renew.set && 2*renew.duration() >= lease.duration() {
			r.both(lease, renew, "must be over twice the pause between renewals")
		}
	}
	if in, ex := route.at("include"), route.at("exclude"); in.set && ex.set {
		r.both(ex, in, "include and exclude do not go together")
	}
}
