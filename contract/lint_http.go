package contract

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// http asks the rules of every operation that changes something.
func (l *linter) http() {
	all := l.d.operations()
	for i, o := range all {
		if !safe(o.method) {
			l.operation(o)
		}
		if l.options.Progress != nil {
			l.options.Progress(i+1, len(all))
		}
	}
}

func (l *linter) operation(o operation) {
	off := l.inline(o.node)
	say := l.report(o.name(), off, o.place)
	for _, note := range o.notes {
		l.add("C01", SeverityNote, o.name(), off, o.place, nil, "%s", note)
	}
	s := &o.statement
	switch s.group() {
	case "":
		say("C01", nil, "no key is declared: state one in x-idempotency, or natural or supported: false, each with its reason")
		l.hints(o, off)
		return
	case "out":
		if strings.TrimSpace(s.Reason) == "" {
			say("C01", []string{"supported"}, "opts out without a reason: say why a repeat may be a second effect")
		}
		l.hints(o, off)
		return
	case "natural":
		if strings.TrimSpace(s.Natural.Reason) == "" {
			say("C01", []string{"natural"}, "natural without a reason: say why twice is the same as once")
		}
		l.hints(o, off)
		return
	}
	l.key(o, off)
	l.times(o, say)
	l.answers(o, say)
	l.marker(o, off)
	if r := s.Replayed; r == nil || len(r.Statuses) == 0 {
		say("C08", []string{"replayed", "statuses"}, "it is not stated which statuses are given again: replayed.statuses")
	}
	if len(s.KeyedBy) == 0 {
		say("C09", nil, "it is not stated what a key is scoped to: keyedBy")
	}
	if attemptID(s.Key.Name) {
		say("C13", []string{"key", "name"}, "%s is made anew on every attempt: no retry would repeat it", s.Key.Name)
	}
	l.hints(o, off)
}

// attemptID says whether a key is what proxies and clients renew on every attempt.
func attemptID(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "X-Request-Id", "X-Correlation-Id", "Traceparent", "Tracestate", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "B3", "Request-Id":
		return true
	}
	return strings.HasPrefix(strings.ToLower(name), "x-b3-")
}

// keyPlace is what the document itself says of the key beside the statement: a parameter, or a member of the body.
func (l *linter) keyPlace(o operation) (schemas []*Node, parameter *Node, required, declared bool) {
	k := o.statement.Key
	if p := o.parameter(k.In, k.Name); p != nil {
		return l.d.schemas(p.Get("schema"), 4), p, p.isTrue("required"), true
	}
	if k.In != "body" {
		return nil, nil, false, false
	}
	name := strings.TrimPrefix(k.Name, "/")
	for _, s := range l.d.bodies(&o) {
		if v := s.Get("properties", name); v != nil {
			declared = true
			schemas = append(schemas, l.d.schemas(v, 4)...)
			if list := s.Get("required"); list != nil {
				required = required || slices.ContainsFunc(list.Items, func(v *Node) bool { return v.Value == name })
			}
		}
	}
	return schemas, nil, required, declared
}

// key asks C02, C03 and C04.
func (l *linter) key(o operation, off map[string]bool) {
	say := l.report(o.name(), off, o.place)
	k := o.statement.Key
	schemas, parameter, required, declared := l.keyPlace(o)
	switch {
	case k.Required == nil && !declared:
		say("C02", []string{"key"}, "it is not stated whether the key is required: key.required")
	case k.Required != nil && declared && *k.Required != required:
		say("C02", []string{"key", "required"}, "key.required is %v, and what declares %s says %v", *k.Required, k.Name, required)
	case !declared && (k.In == "header" || k.In == "query"):
		say("C02", []string{"key"}, "no parameter declares the %s %s, so tools that read the document do not send it", k.In, k.Name)
	}
	for _, fixed := range l.fixed(o, parameter, schemas) {
		l.add("C03", "", o.name(), off, at(fixed), nil, "a fixed value of the key is copied into programs, and every intent becomes one: remove it")
	}
	format, length := k.Format != "", k.MaxLength > 0
	for _, s := range schemas {
		format = format || s.Get("format") != nil || s.Get("pattern") != nil
		length = length || s.Get("maxLength") != nil
	}
	if !format || !length {
		say("C04", []string{"key"}, "%s of the key not stated", map[bool]string{true: "length is", false: "format and length are"}[format || !format && length])
	}
}

// fixed are values of the key that stand in the document.
func (l *linter) fixed(o operation, parameter *Node, schemas []*Node) (out []*Node) {
	look := func(n *Node) {
		for _, name := range []string{"example", "default", "const"} {
			if v := n.Get(name); v != nil {
				out = append(out, v)
			}
		}
		if v := n.Get("examples"); v != nil && len(v.Items)+len(v.Members) > 0 {
			out = append(out, v)
		}
		if v := n.Get("enum"); v != nil && len(v.Items) == 1 {
			out = append(out, v)
		}
	}
	if parameter != nil {
		look(parameter)
		for _, m := range parameter.Get("content").members() {
			look(m.Value)
		}
	}
	for _, s := range schemas {
		look(s)
	}
	if o.statement.Key.In != "body" {
		return out
	}
	body, _ := l.d.resolve(o.node.Get("requestBody"))
	name := strings.TrimPrefix(o.statement.Key.Name, "/")
	for _, m := range body.Get("content").members() {
		if v := m.Value.Get("example", name); v != nil {
			out = append(out, v)
		}
		for _, e := range m.Value.Get("examples").members() {
			if v := e.Value.Get("value", name); v != nil {
				out = append(out, v)
			}
		}
		for _, s := range l.d.schemas(m.Value.Get("schema"), 4) {
			if v := s.Get("example", name); v != nil {
				out = append(out, v)
			}
		}
	}
	return out
}

type sayFunc = func(id string, path []string, format string, args ...any)

// times asks C05 and C10.
func (l *linter) times(o operation, say sayFunc) {
	s := &o.statement
	switch {
	case s.Retention == "":
		say("C05", nil, "it is not stated how long the answer is kept: retention")
	case s.Retention != forever && s.Tombstone == "" && s.Expired == nil:
		say("C05", []string{"retention"}, "it is not stated what a repeat gets after the retention: expired.status, or tombstone")
	}
	p := s.InProgress
	switch {
	case p == nil || p.Status == 0 && p.Wait == "":
		say("C10", []string{"inProgress"}, "it is not stated whether a repeat waits or is refused while the first request runs: inProgress.status or wait")
	case p.Max == "":
		say("C10", []string{"inProgress"}, "it is not stated how long that lasts at most: inProgress.max")
	}
}

// answers asks C06: statuses are stated, and declared among the responses.
func (l *linter) answers(o operation, say sayFunc) {
	s := &o.statement
	if s.Guard == "upstream" {
		return
	}
	required := s.Key.Required != nil && *s.Key.Required
	want := []struct {
		name   string
		status int
		needed bool
	}{{"missing", 0, required}, {"mismatch", 0, true}, {"inProgress", 0, true}}
	if s.Missing != nil {
		want[0].status = s.Missing.Status
	}
	if s.Mismatch != nil {
		want[1].status = s.Mismatch.Status
	}
	if p := s.InProgress; p != nil {
		want[2].status = p.Status
		if wait := p.Wait; p.Status == 0 && wait != "" {
			want[2].needed = false // it waits, and gets the answer
		}
	}
	for _, w := range want {
		switch {
		case !w.needed && w.status == 0:
		case w.status == 0:
			say("C06", []string{w.name}, "it is not stated what is answered: %s.status", w.name)
		case l.response(o, w.status) == nil:
			say("C06", []string{w.name, "status"}, "%s is answered %d, which is not among the responses", w.name, w.status)
		}
	}
}

// response is what the document declares for a status: itself, its class, or the default.
func (l *linter) response(o operation, status int) *Node {
	r := o.node.Get("responses")
	for _, name := range []string{strconv.Itoa(status), strconv.Itoa(status/100) + "XX", "default"} {
		if v := r.Get(name); v != nil {
			v, _ = l.d.resolve(v)
			return v
		}
	}
	return nil
}

// marker asks C07.
func (l *linter) marker(o operation, off map[string]bool) {
	say := l.report(o.name(), off, o.place)
	s := &o.statement
	if s.Guard == "upstream" {
		return
	}
	if s.Replayed == nil || s.Replayed.Marker == nil || s.Replayed.Marker.Header == "" {
		say("C07", []string{"replayed"}, "no marker tells a repeat from a first answer: replayed.marker")
		return
	}
	name := s.Replayed.Marker.Header
	for _, m := range o.node.Get("responses").members() {
		if !strings.HasPrefix(m.Name, "2") {
			continue
		}
		r, p := l.d.resolve(m.Value)
		if p != nil {
			continue
		}
		headers := r.Get("headers")
		found := func(want string) *Node {
			for _, h := range headers.members() {
				if strings.EqualFold(h.Name, want) {
					return h.Value
				}
			}
			return nil
		}
		if found(name) == nil {
			l.add("C07", "", o.name(), off, func(...string) (string, int, int) { return m.Value.File, m.Line, m.Col }, nil, "response %s does not declare the marker %s", m.Name, name)
			continue
		}
		expose := found("Access-Control-Expose-Headers")
		if expose == nil && found("Access-Control-Allow-Origin") == nil {
			continue // nothing is said of browsers
		}
		if expose == nil || !strings.Contains(strings.ToLower(string(appendJSON(nil, expose, -1))), strings.ToLower(name)) {
			say("C07", []string{"replayed", "marker"}, "response %s is for browsers, and does not expose the marker %s: Access-Control-Expose-Headers", m.Name, name)
		}
	}
}

// hints asks C12.
func (l *linter) hints(o operation, off map[string]bool) {
	say := l.report(o.name(), off, o.place)
	keyed := o.statement.group() == "keyed"
	if f := o.node.Get("x-fern-idempotent"); f != nil && f.Kind == Bool {
		switch {
		case f.Value == "true" && !keyed:
			l.add("C12", "", o.name(), off, at(f), nil, "x-fern-idempotent is true, and x-idempotency declares no key")
		case f.Value == "false" && keyed:
			l.add("C12", "", o.name(), off, at(f), nil, "x-fern-idempotent is false, and x-idempotency declares a key")
		case keyed && o.statement.Key.In == "header":
			h := l.d.Root.Get("x-fern-idempotency-headers")
			if h != nil && !slices.ContainsFunc(h.Items, func(v *Node) bool { return strings.EqualFold(v.text("header"), o.statement.Key.Name) }) {
				l.add("C12", "", o.name(), off, at(h), nil, "x-fern-idempotency-headers does not list %s", o.statement.Key.Name)
			}
		}
	}
	if r := o.node.Get("x-speakeasy-retries"); r != nil && !keyed && o.statement.group() != "natural" {
		say("C12", nil, "x-speakeasy-retries makes the SDK repeat an operation that does not recognise repeats")
	}
}
