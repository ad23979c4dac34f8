package contract

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/inbox"
)

// Contract is what one service promises. Make it with New, and say it with OpenAPI, AsyncAPI, Markdown or JSON. It is not safe for
// concurrent use.
type Contract struct {
	Title     string     `json:"title"`
	Version   string     `json:"version"`
	Endpoints []Endpoint `json:"endpoints"`           // by path and method
	Consumers []Consumer `json:"consumers,omitempty"` // by name
}

// Endpoint is one method of one path.
type Endpoint struct {
	Method     string    `json:"method"` // "" where every method passes
	Path       string    `json:"path"`   // with {name} for what varies
	Subtree    bool      `json:"subtree,omitempty"`
	KeyPattern string    `json:"key_pattern,omitempty"` // an RE2 expression that the whole key matches
	Statement  Statement `json:"x-idempotency"`
	// Refusals are the answers that are made on behalf of the service, by status.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is the codes that problem documents of one status have.
type Refusal struct {
	Status int      `json:"status"`
	Codes  []string `json:"codes"`
}

// Consumer is who handles the messages of one channel.
type Consumer struct {
	Name    string  `json:"name"`
	Channel string  `json:"channel"`
	Message Message `json:"x-idempotency"`
}

// New returns a contract that promises nothing yet.
func New(title, version string) *Contract {
	return &Contract{Title: title, Version: version, Endpoints: []Endpoint{}}
}

// Middleware adds what handlers wrapped by m promise. patterns say under which patterns of net/http's ServeMux an operation is mounted;
// a wrapped operation without one is an error, since a document that leaves an endpoint out promises too little.
func (c *Contract) Middleware(m *idemhttp.Middleware, patterns map[string][]string) error {
	var errs []error
	for _, d := range m.Declared() {
		if len(patterns[d.Operation.Name]) == 0 {
			errs = append(errs, fmt.Errorf("contract: operation %q is wrapped, and no pattern says where it is mounted", d.Operation.Name))
		}
		for _, p := range patterns[d.Operation.Name] {
			c.Add(p, d)
		}
	}
	return errors.Join(errs...)
}

// Add adds what is declared of one pattern. A pattern without a method stands for every guarded one.
func (c *Contract) Add(pattern string, d idemhttp.Declared) {
	method, path, subtree := split(pattern)
	methods := d.Methods
	if method != "" {
		methods = []string{method}
	}
	s, problems := state(d), problemsOf(d)
	for _, m := range methods {
		c.put(Endpoint{Method: m, Path: path, Subtree: subtree, KeyPattern: d.Rules.KeyPattern, Statement: s, Refusals: problems})
	}
}

// Natural adds an endpoint of which once and twice are the same, and why: a PUT that sets the whole state.
func (c *Contract) Natural(pattern, reason string) {
	method, path, subtree := split(pattern)
	c.put(Endpoint{Method: method, Path: path, Subtree: subtree, Statement: Statement{Natural: &Natural{Reason: reason}}})
}

// OptOut adds an endpoint that recognises no repeats, and why that is right. Safe methods are left out: nothing is to be said of them.
func (c *Contract) OptOut(pattern, reason string) {
	method, path, subtree := split(pattern)
	if safe(method) {
		return
	}
	no := false
	c.put(Endpoint{Method: method, Path: path, Subtree: subtree, Statement: Statement{Supported: &no, Reason: reason}})
}

// Inbox adds what an inbox promises of the messages on a channel: a topic or queue.
func (c *Contract) Inbox(in *inbox.Inbox, channel string) {
	o := in.Declared()
	required := o.MissingID == inbox.MissingPark
	m := Message{ID: &MessageID{In: "header", Name: "ce-id", Required: &required}, KeyedBy: []string{"tenant", "subscriber", "source", "id"}, Guard: string(o.Guard),
		Retention: FormatDuration(in.Window()), MissingID: o.MissingID, SameIDOtherBody: "park", Order: string(cmp.Or(o.Order, inbox.OrderSerial)), Attempts: o.MaxAttempts,
		DeadLetter: "kept with the receipts of " + o.Subscriber + ", for a person"}
	if o.Fingerprint == inbox.FingerprintOff {
		m.SameIDOtherBody = "duplicate"
	}
	if o.Order != inbox.OrderNone {
		m.OrderKey = "partitionkey"
	}
	c.Consume(Consumer{Name: o.Subscriber, Channel: channel, Message: m})
}

// Consume adds a consumer. One of the same name is replaced.
func (c *Contract) Consume(s Consumer) {
	c.Consumers = slices.DeleteFunc(c.Consumers, func(o Consumer) bool { return o.Name == s.Name })
	c.Consumers = append(c.Consumers, s)
	slices.SortFunc(c.Consumers, func(a, b Consumer) int { return strings.Compare(a.Name, b.Name) })
}

func (c *Contract) put(e Endpoint) {
	c.Endpoints = slices.DeleteFunc(c.Endpoints, func(o Endpoint) bool { return o.Method == e.Method && o.Path == e.Path })
	c.Endpoints = append(c.Endpoints, e)
	slices.SortFunc(c.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
	})
}

// JSON is the contract as JSON, with "schema":1.
func (c *Contract) JSON() []byte {
	n := nodeOf(c)
	n.Members = slices.Insert(n.Members, 0, Member{Name: "schema", Value: node(1)})
	return JSON(n)
}

// FromJSON reads what JSON wrote.
func FromJSON(b []byte) (*Contract, error) {
	var c Contract
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	return &c, nil
}

// split turns a pattern of ServeMux into a method and a path template: host, {$} and dots are dropped, a subtree gets a name for its
// rest.
func split(pattern string) (method, path string, subtree bool) {
	method, path, ok := strings.Cut(strings.TrimSpace(pattern), " ")
	if !ok {
		method, path = "", method
	}
	path = strings.TrimSpace(path)
	if i := strings.Index(path, "/"); i > 0 {
		path = path[i:]
	}
	switch {
	case strings.HasSuffix(path, "{$}"):
		path = strings.TrimSuffix(path, "{$}")
	case strings.HasSuffix(path, "...}"):
		path, subtree = strings.TrimSuffix(path, "...}")+"}", true
	case strings.HasSuffix(path, "/"):
		path, subtree = path+"{rest}", true
	}
	return method, path, subtree
}

func safe(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, method)
}

// state is the statement of what is declared.
func state(d idemhttp.Declared) Statement {
	yes := true
	required := d.Rules.Key == idemhttp.KeyRequired
	s := Statement{Profile: "idempo", Operation: d.Operation.Name, Guard: string(d.Operation.Guard), KeyedBy: d.KeyedBy, Key: keyOf(d.Rules)}
	s.Key.Required, s.Key.Issued = &required, d.Operation.Issued
	if required {
		s.Missing = &Answer{Status: idemhttp.NewProblem("key_missing").Status}
	}
	if d.Inspected {
		s.Guard = "upstream"
		return s
	}
	s.Effects, s.OnCrash = "local", "rollback"
	if d.Operation.Guard == idempo.GuardLeased {
		s.Effects, s.OnCrash = "outside", string(d.Operation.OnCrash)
		s.InDoubt = &Answer{Status: idemhttp.NewProblem("in_doubt").Status}
	}
	s.Retention, s.Tombstone = FormatDuration(d.Operation.Retention), FormatDuration(d.Operation.Tombstone)
	s.StaleResult = "original"
	if d.Rules.RenderFunc != nil {
		s.StaleResult = "current"
	}
	s.Mismatch = mismatchOf(d.Rules)
	s.InProgress = &InProgress{Status: idemhttp.NewProblem("in_progress").Status, RetryAfter: &yes, Wait: FormatDuration(d.Rules.Wait),
		Max: FormatDuration(d.Operation.MaxRun + d.Operation.Lease)}
	s.Expired = &Expired{Status: idemhttp.NewProblem("expired").Status, Resource: &yes}
	kept, not := fates(d)
	s.Replayed = &Replayed{Statuses: kept, Headers: d.Rules.KeepHeaders, Marker: &Marker{Header: d.ReplayHeader, Value: "true"}}
	s.NotKept = not
	return s
}

func keyOf(r idemhttp.Rules) *Key {
	k := &Key{In: "header", MinLength: r.MinKey, MaxLength: r.MaxKey, Format: "string"}
	switch r.Profile {
	case "strict":
		k.Format = "sf-string"
	case "uuid":
		k.Format, k.MinLength, k.MaxLength = "uuid", 36, 36
	}
	switch {
	case r.KeyPointer != "":
		k.In, k.Name = "body", r.KeyPointer
	case len(r.KeyFrom) == 1 && strings.HasPrefix(r.KeyFrom[0], "aws:"):
		k.In, k.Name = "query", strings.TrimPrefix(r.KeyFrom[0], "aws:")
	case len(r.KeyFrom) == 1:
		k.In, k.Name, _ = strings.Cut(r.KeyFrom[0], ":")
	case len(r.KeyFrom) > 1:
		k.In, k.Name = "parts", strings.Join(r.KeyFrom, " + ")
	case len(r.KeyHeaders) > 0:
		k.Name = r.KeyHeaders[0]
	}
	return k
}

func mismatchOf(r idemhttp.Rules) *Mismatch {
	if r.Fingerprint == idemhttp.FingerprintNone {
		return nil
	}
	m := &Mismatch{Status: r.MismatchStatus, Covers: []string{"method", "path", "query", "media_type"}, Ignores: r.Exclude}
	if r.PathValues {
		m.Covers[1] = "path values"
	}
	for _, h := range r.Headers {
		m.Covers = append(m.Covers, "header:"+http.CanonicalHeaderKey(h))
	}
	if len(r.Include) == 0 {
		m.Covers = append(m.Covers, "body")
	}
	for _, p := range r.Include {
		m.Covers = append(m.Covers, "body:"+p)
	}
	return m
}

// fates sorts the statuses that a handler may answer with into those that are kept and those that are not: whole classes, and in the
// second list what is left out of a class that is kept.
func fates(d idemhttp.Declared) (kept, not []string) {
	for class := 2; class <= 5; class++ {
		keeps := func(status int) bool {
			o := d.Outcome(status)
			return o == idemhttp.OutcomeKeep || o == idemhttp.OutcomeKeepFailure
		}
		usual := keeps(100*class + 99) // nobody has rules for it
		if usual {
			kept = append(kept, strconv.Itoa(class)+"XX")
		} else {
			not = append(not, strconv.Itoa(class)+"XX")
		}
		for status := 100 * class; status < 100*class+99; status++ {
			switch k := keeps(status); {
			case k == usual:
			case k:
				kept = append(kept, strconv.Itoa(status))
			default:
				not = append(not, strconv.Itoa(status))
			}
		}
	}
	return kept, not
}

// problemsOf are the codes a caller may meet, by status.
func problemsOf(d idemhttp.Declared) (out []Refusal) {
	codes := []string{"key_empty", "key_malformed", "key_length", "key_multiple"}
	if d.Rules.Key == idemhttp.KeyRequired {
		codes = append([]string{"key_missing"}, codes...)
	}
	if d.Operation.Issued {
		codes = append(codes, "key_not_issued")
	}
	codes = append(codes, "draining")
	if !d.Inspected {
		codes = append(codes, "body_incomplete", "body_too_large", "in_progress", "expired", "result_not_kept", "quota_exceeded", "store_unavailable", "record_unreadable")
		if d.Rules.Fingerprint != idemhttp.FingerprintNone {
			codes = append(codes, "mismatch")
		}
		if len(d.Rules.UniqueBy) > 0 {
			codes = append(codes, "already_done")
		}
	}
	if d.Operation.Guard == idempo.GuardLeased {
		codes = append(codes, "in_doubt", "outcome_unknown")
	}
	for _, code := range codes {
		status := idemhttp.NewProblem(code).Status
		if code == "mismatch" {
			status = d.Rules.MismatchStatus
		}
		at := slices.IndexFunc(out, func(p Refusal) bool { return p.Status == status })
		if at < 0 {
			out, at = append(out, Refusal{Status: status}), len(out)
		}
		out[at].Codes = append(out[at].Codes, code)
	}
	slices.SortFunc(out, func(a, b Refusal) int { return a.Status - b.Status })
	return out
}
