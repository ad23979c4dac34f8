package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// Change is one difference between two documents. Values that are spelled differently and mean the same are none.
type Change struct {
	Breaking bool   `json:"breaking"` // a caller that relied on the old document may now have a second effect, or an answer it does not know
	Where    string `json:"operation"`
	Member   string `json:"member"` // of x-idempotency; "" for the operation as a whole
	Old      string `json:"old,omitempty"`
	New      string `json:"new,omitempty"`
	Why      string `json:"why"`
	File     string `json:"file"` // in the new document; in the old one for what is gone
	Line     int    `json:"line"`
	Col      int    `json:"column"`
}

// text is the change without its place.
func (c Change) text() string {
	t := c.Why
	switch {
	case c.Old != "" && c.New != "":
		t += ": " + c.Old + " is now " + c.New
	case c.Old != "":
		t += ": was " + c.Old
	case c.New != "":
		t += ": " + c.New
	}
	return t
}

// String is FILE:LINE:COL breaking|compatible WHERE: what changed.
func (c Change) String() string {
	kind := "compatible"
	if c.Breaking {
		kind = "breaking"
	}
	return fmt.Sprintf("%s:%d:%d %s %s: %s", c.File, c.Line, c.Col, kind, c.Where, c.text())
}

// Diff lists what changed between two documents of one kind, by operation. Between an OpenAPI and an AsyncAPI document everything
// changed.
func Diff(before, after *Document) (out []Change) {
	a, b := before.stated(), after.stated()
	var names []string
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		x, was := a[name]
		y, is := b[name]
		switch {
		case !is && x.keyed:
			out = append(out, x.change(true, name, "", "", "", "the operation is gone"))
		case !was && y.keyed:
			out = append(out, y.change(false, name, "", "", "", "a new operation"))
		case was && is:
			out = append(out, compare(name, x, y)...)
		}
	}
	return out
}

// stated is what a document says of one operation, flat: member paths to values in one spelling.
type stated struct {
	keyed bool
	flat  map[string]string
	place place
}

func (s stated) change(breaking bool, where, member, a, b, why string) Change {
	file, line, col := s.place(strings.Split(member, ".")...)
	return Change{breaking, where, member, a, b, why, file, line, col}
}

func (d *Document) stated() map[string]stated {
	out := map[string]stated{}
	if d.Async {
		for _, o := range d.messages() {
			out[o.name] = stated{o.statement.ID != nil, flatten(o.said), o.place}
		}
		return out
	}
	for _, o := range d.operations() {
		if !safe(o.method) {
			out[o.name()] = stated{o.statement.group() == "keyed", flatten(o.said), o.place}
		}
	}
	return out
}

// flatten writes every value in one spelling: durations in nanoseconds, sets sorted, names of headers in lower case.
func flatten(n *Node) map[string]string {
	out := map[string]string{}
	var walk func(path string, n *Node)
	walk = func(path string, n *Node) {
		switch n.Kind {
		case Map:
			for _, m := range n.Members {
				walk(strings.TrimPrefix(path+"."+m.Name, "."), m.Value)
			}
		case List:
			var all []string
			for _, v := range n.Items {
				all = append(all, lowerHeader(path, v.Value))
			}
			slices.Sort(all)
			b, _ := json.Marshal(all)
			out[path] = string(b)
		default:
			out[path] = lowerHeader(path, n.Value)
		}
	}
	if n != nil {
		walk("", n)
	}
	delete(out, "reason")
	return out
}

func lowerHeader(path, v string) string {
	switch path {
	case "key.name", "replayed.headers", "replayed.marker.header", "id.name":
		return strings.ToLower(v)
	}
	return v
}

func compare(name string, x, y stated) (out []Change) {
	if x.keyed && !y.keyed {
		return []Change{y.change(true, name, "key", x.flat["key.name"], "", "the key is gone")}
	}
	if !x.keyed && y.keyed {
		required := y.flat["key.required"] == "true"
		return []Change{y.change(required, name, "key", "", y.flat["key.name"], map[bool]string{true: "a key is now required", false: "repeats are now recognised"}[required])}
	}
	var members []string
	for m := range x.flat {
		members = append(members, m)
	}
	for m := range y.flat {
		if _, ok := x.flat[m]; !ok {
			members = append(members, m)
		}
	}
	sort.Strings(members)
	for _, m := range members {
		a, b := x.flat[m], y.flat[m]
		if sameValue(a, b) {
			continue
		}
		if breaking, why := judge(m, a, b); why != "" {
			out = append(out, y.change(breaking, name, m, a, b, why))
		}
	}
	return out
}

// sameValue compares by meaning: P1D is PT24H.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, errA := ParseDuration(a)
	y, errB := ParseDuration(b)
	return errA == nil && errB == nil && x == y
}

// length is a duration to compare by; none is no time.
func length(s string) time.Duration {
	d, err := ParseDuration(s)
	if err != nil {
		return 0
	}
	if d == idempo.Forever {
		return 1<<63 - 1
	}
	return d
}

// judge says whether a change of one member breaks a caller.
func judge(member, a, b string) (breaking bool, why string) {
	switch member {
	case "retention", "tombstone":
		if length(b) < length(a) {
			return true, member + " is shorter"
		}
		return false, member + " is longer"
	case "window", "inProgress.max", "inProgress.wait":
		return length(b) > length(a) && a != "" && member != "inProgress.wait", member + " changed"
	case "guard":
		return weaker(a, b), "the guard changed"
	case "onCrash":
		return b == "rerun", "what follows a crash changed"
	case "key.required":
		return b == "true", "whether the key is required changed"
	case "key.maxLength":
		return smaller(b, a), "the longest key changed"
	case "key.minLength":
		return smaller(a, b), "the shortest key changed"
	case "operation", "profile", "reason", "natural.reason", "effects", "deadLetter", "attempts":
		return false, member + " changed"
	case "missing.status", "mismatch.status", "inProgress.status", "inDoubt.status", "expired.status":
		return a != "", member + " changed"
	case "mismatch.ignores":
		return false, "what does not count in a request changed"
	case "id.required":
		return b == "true", "whether the identity is required changed"
	}
	if a == "" {
		return false, member + " is now stated"
	}
	return true, member + " changed"
}

// smaller says whether a is a tighter bound than b; nothing is no bound.
func smaller(a, b string) bool {
	if a == "" {
		return false
	}
	return b == "" || len(a) < len(b) || len(a) == len(b) && a < b
}

func weaker(a, b string) bool {
	rank := func(g string) int { return slices.Index([]string{"", "upstream", "leased", "atomic"}, g) }
	return rank(b) < rank(a)
}
