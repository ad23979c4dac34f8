package contract

import (
	"slices"
	"strconv"
	"strings"

	"github.com/idempo/idempo/internal/editdistance"
)

// Statement is x-idempotency: what one HTTP operation promises about repeated calls. A zero member is not stated. Durations are ISO
// 8601 or the word forever, statuses numbers or classes ("2XX").
type Statement struct {
	Profile     string      `json:"profile,omitempty"`     // whose rules hold where nothing else is said: ietf, stripe …
	Operation   string      `json:"operation,omitempty"`   // the name that keys belong to
	Guard       string      `json:"guard,omitempty"`       // atomic, leased, upstream
	OnCrash     string      `json:"onCrash,omitempty"`     // rollback, hold, probe, rerun
	Effects     string      `json:"effects,omitempty"`     // local: in the database of the record; outside
	KeyedBy     []string    `json:"keyedBy,omitempty"`     // what two equal keys must share to be one
	Retention   string      `json:"retention,omitempty"`   // how long the answer is given again
	Tombstone   string      `json:"tombstone,omitempty"`   // how long after that a repeat is refused
	StaleResult string      `json:"staleResult,omitempty"` // original, current
	Key         *Key        `json:"key,omitempty"`
	Missing     *Answer     `json:"missing,omitempty"`
	Mismatch    *Mismatch   `json:"mismatch,omitempty"`
	InProgress  *InProgress `json:"inProgress,omitempty"`
	InDoubt     *Answer     `json:"inDoubt,omitempty"`
	Expired     *Expired    `json:"expired,omitempty"`
	Replayed    *Replayed   `json:"replayed,omitempty"`
	NotKept     []string    `json:"notKept,omitempty"`   // statuses after which the key runs again, or is in doubt
	Supported   *bool       `json:"supported,omitempty"` // false: repeats are not recognised; Reason says why that is right
	Reason      string      `json:"reason,omitempty"`
	Natural     *Natural    `json:"natural,omitempty"` // once or twice is the same
}

// Key says where the key is and what it looks like.
type Key struct {
	In        string `json:"in,omitempty"`       // header, query, path, body, parts
	Name      string `json:"name,omitempty"`     // of the header or parameter; a JSON pointer in a body
	Required  *bool  `json:"required,omitempty"` //
	Format    string `json:"format,omitempty"`   // sf-string, uuid, string
	MinLength int    `json:"minLength,omitempty"`
	MaxLength int    `json:"maxLength,omitempty"`
	Issued    bool   `json:"issued,omitempty"` // only keys that the server handed out
}

// Answer is the status of an answer.
type Answer struct {
	Status int `json:"status,omitempty"`
}

// Mismatch is what another request under a known key gets.
type Mismatch struct {
	Status  int      `json:"status,omitempty"`
	Covers  []string `json:"covers,omitempty"`  // method, path, query, media_type, header:<name>, body
	Ignores []string `json:"ignores,omitempty"` // pointers into the body
}

// InProgress is what a repeat gets while the first request runs.
type InProgress struct {
	Status     int    `json:"status,omitempty"`
	RetryAfter *bool  `json:"retryAfter,omitempty"`
	Wait       string `json:"wait,omitempty"` // how long a repeat is held before it gets Status
	Max        string `json:"max,omitempty"`  // by then there is a definite answer
}

// Expired is what a repeat gets once the answer is no longer kept.
type Expired struct {
	Status   int   `json:"status,omitempty"`
	Resource *bool `json:"resource,omitempty"` // it names what was made
}

// Replayed is what repeats get again, and how they show it.
type Replayed struct {
	Statuses []string `json:"statuses,omitempty"`
	Headers  []string `json:"headers,omitempty"` // the only ones given again; none: all that belong to the answer
	Marker   *Marker  `json:"marker,omitempty"`
}

// Marker is the header that tells a repeat from a first answer.
type Marker struct {
	Header string `json:"header,omitempty"`
	Value  string `json:"value,omitempty"`
}

// Natural says why doing it twice is the same as once.
type Natural struct {
	Reason string `json:"reason,omitempty"`
}

// Group is one of the three kinds of endpoint: keyed, natural, out (repeats are not recognised), or "" where nothing is said.
func (s Statement) Group() string { return s.group() }

func (s *Statement) group() string {
	switch {
	case s == nil:
		return ""
	case s.Supported != nil && !*s.Supported:
		return "out"
	case s.Natural != nil:
		return "natural"
	case s.Key != nil && s.Key.Name != "":
		return "keyed"
	}
	return ""
}

// Message is x-idempotency of an AsyncAPI operation or message. The first nine members are said by who receives, ID too by who sends.
type Message struct {
	ID              *MessageID `json:"id,omitempty"`
	KeyedBy         []string   `json:"keyedBy,omitempty"`
	Guard           string     `json:"guard,omitempty"`           // atomic, leased
	Retention       string     `json:"retention,omitempty"`       // how long a message is recognised
	SameIDOtherBody string     `json:"sameIdOtherBody,omitempty"` // park, duplicate, reject, run
	MissingID       string     `json:"missingId,omitempty"`       // park, digest, position, reject, run
	Order           string     `json:"order,omitempty"`           // none, serial, latest, contiguous
	OrderKey        string     `json:"orderKey,omitempty"`        // what order is kept within
	Attempts        int        `json:"attempts,omitempty"`        // starts of the handler before it is dead
	DeadLetter      string     `json:"deadLetter,omitempty"`      // where a dead message is then
	Duplicates      string     `json:"duplicates,omitempty"`      // possible, none
	Window          string     `json:"window,omitempty"`          // how late a duplicate may be sent
	Supported       *bool      `json:"supported,omitempty"`
	Reason          string     `json:"reason,omitempty"`
}

// MessageID says where the identity of a message is.
type MessageID struct {
	In       string `json:"in,omitempty"` // header, payload, broker
	Name     string `json:"name,omitempty"`
	Required *bool  `json:"required,omitempty"`
}

// rule is what may stand at a member.
type rule struct {
	kind    string // text, words, truth, count, status, statuses, texts, duration, object
	words   []string
	members map[string]rule
}

func words(w ...string) rule { return rule{kind: "words", words: w} }

func members(m map[string]rule) rule { return rule{kind: "object", members: m} }

// httpRules is the table of x-idempotency in OpenAPI.
func httpRules() rule {
	text, truth, status, texts, duration, count := rule{kind: "text"}, rule{kind: "truth"}, rule{kind: "status"}, rule{kind: "texts"}, rule{kind: "duration"}, rule{kind: "count"}
	answer := members(map[string]rule{"status": status})
	return members(map[string]rule{
		"profile": text, "operation": text, "guard": words("atomic", "leased", "upstream"), "onCrash": words("rollback", "hold", "probe", "rerun"),
		"effects": words("local", "outside"), "keyedBy": texts, "retention": duration, "tombstone": duration, "staleResult": words("original", "current"),
		"key": members(map[string]rule{"in": words("header", "query", "path", "body", "parts"), "name": text, "required": truth, "format": text,
			"minLength": count, "maxLength": count, "issued": truth}),
		"missing": answer, "inDoubt": answer,
		"mismatch":   members(map[string]rule{"status": status, "covers": texts, "ignores": texts}),
		"inProgress": members(map[string]rule{"status": status, "retryAfter": truth, "wait": duration, "max": duration}),
		"expired":    members(map[string]rule{"status": status, "resource": truth}),
		"replayed": members(map[string]rule{"statuses": {kind: "statuses"}, "headers": texts,
			"marker": members(map[string]rule{"header": text, "value": text})}),
		"notKept": {kind: "statuses"}, "supported": truth, "reason": text, "natural": members(map[string]rule{"reason": text}),
	})
}

// messageRules is the table of x-idempotency in AsyncAPI.
func messageRules() rule {
	text, duration := rule{kind: "text"}, rule{kind: "duration"}
	return members(map[string]rule{
		"id":      members(map[string]rule{"in": words("header", "payload", "broker"), "name": text, "required": {kind: "truth"}}),
		"keyedBy": {kind: "texts"}, "guard": words("atomic", "leased"), "retention": duration, "sameIdOtherBody": words("park", "duplicate", "reject", "run"),
		"missingId": words("park", "digest", "position", "reject", "run"), "order": words("none", "serial", "latest", "contiguous"), "orderKey": text,
		"attempts": {kind: "count"}, "deadLetter": text, "duplicates": words("possible", "none"), "window": duration, "supported": {kind: "truth"}, "reason": text,
	})
}

// check lists what is wrong with a node by a rule. Statuses and marker values may be written as numbers or booleans; they are text then.
func (r rule) check(n *Node) (out Problems) {
	bad := func(what string) Problems { return Problems{n.problem("%s wanted, found %s", what, n.words())} }
	switch r.kind {
	case "object":
		if n.Kind != Map {
			return bad("a set of members")
		}
		for _, m := range n.Members {
			inner, ok := r.members[m.Name]
			if !ok {
				out = append(out, m.problem("unknown member %s of x-idempotency%s", quote(m.Name), hint(m.Name, r.members)))
				continue
			}
			out = append(out, inner.check(m.Value)...)
		}
	case "texts", "statuses":
		if n.Kind != List {
			return bad("a list")
		}
		for _, v := range n.Items {
			out = append(out, r.item(v)...)
		}
	case "truth":
		if n.Kind != Bool {
			return bad("true or false")
		}
	case "count", "status":
		if v, err := strconv.Atoi(n.Value); n.Kind != Number || err != nil || v < 0 || r.kind == "status" && (v < 200 || v > 599) {
			return bad(map[string]string{"count": "a whole number", "status": "a status from 200 to 599"}[r.kind])
		}
	case "duration":
		if n.Kind != Text {
			return bad("an ISO 8601 duration")
		}
		if _, err := ParseDuration(n.Value); err != nil {
			return Problems{n.problem("%s", err)}
		}
	case "words":
		if n.Kind != Text || !slices.Contains(r.words, n.Value) {
			return bad("one of " + strings.Join(r.words, " "))
		}
	default:
		if n.Kind != Text && n.Kind != Bool && n.Kind != Number {
			return bad("text")
		}
	}
	return out
}

func (r rule) item(v *Node) Problems {
	if r.kind == "texts" && v.Kind == Text {
		return nil
	}
	if r.kind == "statuses" {
		if n, err := strconv.Atoi(v.Value); v.Kind <= Text && err == nil && n >= 200 && n <= 599 {
			return nil
		}
		if len(v.Value) == 3 && v.Value[0] >= '2' && v.Value[0] <= '5' && strings.EqualFold(v.Value[1:], "XX") {
			return nil
		}
		return Problems{v.problem("a status from 200 to 599 or a class such as 2XX wanted, found %s", v.words())}
	}
	return Problems{v.problem("text wanted, found %s", v.words())}
}

// words is a node as a message names it.
func (n *Node) words() string {
	switch n.Kind {
	case Null:
		return "nothing"
	case List:
		return "a list"
	case Map:
		return "a set of members"
	case Text:
		return quote(n.Value)
	}
	return n.Value
}

// normal makes every scalar where text is read a text, so that 200 and "200" are one.
func (r rule) normal(n *Node) *Node {
	c := *n
	switch r.kind {
	case "object":
		c.Members = slices.Clone(n.Members)
		for i, m := range c.Members {
			c.Members[i].Value = r.members[m.Name].normal(m.Value)
		}
	case "statuses":
		c.Items = nil
		for _, v := range n.Items {
			c.Items = append(c.Items, node(strings.ToUpper(v.Value)))
		}
	case "text", "":
		if c.Kind == Bool || c.Kind == Number {
			c.Kind = Text
		}
	}
	return &c
}

// hint names the member that was meant.
func hint(name string, known map[string]rule) string {
	best, at := "", 3
	for k := range known {
		if d := editdistance.Between(strings.ToLower(name), strings.ToLower(k)); d < at || d == at && k < best {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// overlay merges member by member: what over says replaces what n says; objects are merged, lists replaced.
func (n *Node) overlay(over *Node) *Node {
	if n == nil || over == nil || n.Kind != Map || over.Kind != Map {
		if over == nil {
			return n
		}
		return over
	}
	c := *over
	c.Members = slices.Clone(n.Members)
	for _, m := range over.Members {
		merged := n.Get(m.Name).overlay(m.Value)
		if i := slices.IndexFunc(c.Members, func(o Member) bool { return o.Name == m.Name }); i >= 0 {
			c.Members[i] = Member{m.Name, m.Line, m.Col, merged}
			continue
		}
		c.Members = append(c.Members, Member{m.Name, m.Line, m.Col, merged})
	}
	return &c
}
