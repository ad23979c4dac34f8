package gateway

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

func (r Route) guarded() bool { return r.Operation != "" }

func (r Route) leased() bool { return r.Operation != "" && r.Guard != "upstream" }

// methodOf is the method a pattern names, or "".
func methodOf(pattern string) string {
	if m, _, ok := strings.Cut(strings.TrimSpace(pattern), " "); ok {
		return m
	}
	return ""
}

// wildcards are the names a pattern binds.
func wildcards(pattern string) []string {
	var names []string
	for rest := pattern; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return names
		}
		name, tail, ok := strings.Cut(after, "}")
		if !ok {
			return names
		}
		if name = strings.TrimSuffix(name, "..."); name != "$" && name != "" {
			names = append(names, name)
		}
		rest = tail
	}
}

func (c Config) validateRoute(f *findings, i int) {
	r, path := c.Routes[i], index("routes", i)
	if r.Match == "" {
		f.add(at(path, "match"), `is not set; write a pattern such as "POST /v1/payments"`)
	}
	if _, ok := c.Upstreams[r.Upstream]; !ok {
		f.add(at(path, "upstream"), "is %q, which is not under upstreams", r.Upstream)
	}
	f.word(at(path, "guard"), r.Guard, "leased", "upstream")
	f.word(at(path, "on_crash"), r.OnCrash, "hold", "probe", "rerun")
	f.word(at(path, "upstream_key"), r.UpstreamKey, "forward", "derive", "none")
	f.word(at(path, "fingerprint"), r.Fingerprint, "canonical", "raw", "none")
	f.word(at(path, "mismatch_detail"), r.MismatchDetail, "pointers", "none")
	f.word(at(path, "result"), r.Result, "full", "pointer")
	f.word(at(path, "on_store_down"), r.OnStoreDown, "refuse", "run")
	f.word(at(path, "key.profile"), r.Key.Profile, "default", "strict", "uuid", "stripe", "adyen", "square", "paypal", "aws")
	for status, outcome := range r.Outcomes {
		if status < 200 || status > 599 {
			f.add(at(path, "outcomes"), "names status %d; final statuses are 200 to 599", status)
		}
		f.word(at(path, "outcomes"), outcome, "keep", "keep_failure", "release", "in_doubt")
	}
	if r.UpstreamKeyHeader != "" && !validName(r.UpstreamKeyHeader) {
		f.add(at(path, "upstream_key_header"), "is %q, which is no header name", r.UpstreamKeyHeader)
	}
	f.duration(at(path, "answer_within"), r.AnswerWithin)
	if !r.guarded() {
		if !reflect.DeepEqual(r, Route{Match: r.Match, Upstream: r.Upstream}) {
			f.add(path, "has settings of a guarded route and no operation; set operation, or drop them")
		}
		return
	}
	if !operationName.MatchString(r.Operation) {
		f.add(at(path, "operation"), "is %q; letters, digits, . _ : - only, at most 192", r.Operation)
	}
	methods := append([]string{http.MethodPost, http.MethodPatch}, r.Methods...)
	if m := methodOf(r.Match); safe(m) || m == http.MethodConnect {
		f.pair(at(path, "match"), at(path, "operation"), "matches %s only, which is never guarded; drop operation", m)
	} else if m != "" && !slices.Contains(methods, m) {
		f.pair(at(path, "match"), at(path, "operation"), "matches %s only, which is not guarded; add it to methods, or drop operation", m)
	}
	if r.Issued && r.Issue == "" {
		f.add(at(path, "issue"), `is not set though issued is; write where keys are issued, such as "POST /v1/payments/keys"`)
	}
	if r.Issue != "" && !r.Issued {
		f.add(at(path, "issued"), "is false though issue is set")
	}
	if m := methodOf(r.Issue); r.Issue != "" && m != http.MethodPost {
		f.add(at(path, "issue"), "is %q; it starts with POST", r.Issue)
	}
	if m := methodOf(r.Status); r.Status != "" && m != http.MethodGet {
		f.add(at(path, "status"), "is %q; it starts with GET", r.Status)
	}
	r.validateCrash(f, path)
}

func (r Route) validateCrash(f *findings, path string) {
	if r.Guard == "upstream" {
		for _, s := range []struct {
			name string
			set  bool
		}{{"on_crash", r.OnCrash != ""}, {"probe", r.Probe != nil}, {"issue", r.Issue != ""}, {"status", r.Status != ""}, {"answer_within", r.AnswerWithin != 0}} {
			if s.set {
				f.pair(at(path, s.name), at(path, "guard"), "means nothing where the upstream guards itself")
			}
		}
		if r.UpstreamKey == "derive" || r.UpstreamKey == "none" {
			f.pair(at(path, "upstream_key"), at(path, "guard"), "must be forward where the upstream guards itself")
		}
		return
	}
	if r.OnCrash == "rerun" && r.RepeatHarmless == "" {
		if !r.UpstreamHonoursKey {
			f.pair(at(path, "on_crash"), at(path, "upstream_honours_key"), "rerun sends again: only an upstream that honours the key makes that one effect; set upstream_honours_key: true, or on_crash: hold")
		}
		if r.UpstreamKey == "none" {
			f.pair(at(path, "on_crash"), at(path, "upstream_key"), "rerun needs the upstream to get the key: forward or derive")
		}
	}
	if (r.OnCrash == "probe") != (r.Probe != nil) {
		f.pair(at(path, "on_crash"), at(path, "probe"), "on_crash: probe and probe go together")
	}
	if r.Probe == nil {
		return
	}
	p, path := r.Probe, at(path, "probe")
	if _, err := parseProbe(p.Request, wildcards(r.Match)); err != nil {
		f.add(at(path, "request"), "%s", err)
	}
	for name, m := range map[string]ProbeMatch{"happened": p.Happened, "not_happened": p.NotHappened} {
		if len(m.Status) == 0 {
			f.add(at(path, name+".status"), "is empty; list the statuses that fit")
		}
		for _, s := range m.Status {
			if s < 200 || s > 599 || (s >= 300 && s < 400) {
				f.add(at(path, name+".status"), "has %d; redirects are not followed and settle nothing", s)
			}
		}
		for pointer := range m.JSON {
			if pointer != "" && pointer[0] != '/' {
				f.add(at(path, name+".json"), "has %q; a JSON pointer starts with /", pointer)
			}
		}
	}
	if res := p.Result; res != nil {
		if res.Status < 200 || res.Status > 599 {
			f.add(at(path, "result.status"), "is %d; final statuses are 200 to 599", res.Status)
		}
		if res.Body != "" && res.Body[0] != '/' {
			f.add(at(path, "result.body"), "is %q; a JSON pointer starts with /", res.Body)
		}
	}
	f.duration(at(path, "timeout"), p.Timeout)
	f.duration(at(path, "settle"), p.Settle)
	f.duration(at(path, "every"), p.Every)
	if p.Attempts < 0 {
		f.add(at(path, "attempts"), "is negative")
	}
}

// validateOperations: one operation on two routes is one key space, so what the engine is told of it must be the same.
func (c Config) validateOperations(f *findings) {
	first := make(map[string]int)
	for i, r := range c.Routes {
		if !r.guarded() {
			continue
		}
		j, seen := first[r.Operation]
		if !seen {
			first[r.Operation] = i
			continue
		}
		a, b := c.Routes[j].declared(), r.declared()
		if !reflect.DeepEqual(a, b) {
			f.pair(index("routes", j), index("routes", i), "operation %q is declared with different settings (guard, on_crash, upstream_honours_key, issued, lease, max_run, retention, tombstone, horizons, max_result)", r.Operation)
		}
	}
}

// declared is the part of a route that belongs to its operation.
func (r Route) declared() Route {
	return Route{Guard: r.Guard, OnCrash: r.OnCrash, UpstreamHonoursKey: r.UpstreamHonoursKey, RepeatHarmless: r.RepeatHarmless,
		Issued: r.Issued, IssuedFor: r.IssuedFor, Lease: r.Lease, MaxRun: r.MaxRun, Retention: r.Retention,
		Tombstone: r.Tombstone, Horizons: r.Horizons, MaxResult: r.MaxResult}
}

// upstreamURL is a parsed and bare upstream address; Config.Validate has refused anything else.
func upstreamURL(raw string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil {
		return &url.URL{}
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}
