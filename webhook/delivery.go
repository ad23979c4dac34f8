package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Why an event was not understood; it then waits for a person.
const (
	ParkedUnparsable   = "unparsable"
	ParkedNoID         = "no-id"
	ParkedTooManyItems = "too-many-items"
)

// Delivery is what a verified request holds.
type Delivery struct {
	Events  []Event // none for an empty list
	Attempt string  // what the sender says about its attempt; never a reason to drop
	Notice  bool    // a ping or an empty list: stored, and nothing is run
}

// Event is one event of a delivery.
type Event struct {
	Index   int
	Body    []byte // its exact bytes within the request
	IDs     []Identity
	Type    string
	Lane    string
	Version string
	Parked  string // why it was not understood, or ""
	// Source, Tenant, Receipt and Header are set for handlers: where it came in, under which receipt, with which headers
	// (credentials are redacted).
	Source, Tenant, Receipt string
	Header                  http.Header
	// Content is what two attempts of one event have in common: its bytes without the members that may differ.
	Content []byte

	doing *doing
}

// Identity is one delivery id of an event.
type Identity struct {
	Key    string // typed and length-prefixed, so that no two ids read alike
	Text   string // for operators
	Signed bool   // the code covers it
}

// split cuts a verified request into its events. doc is the body once inflated.
func (v *Verifier) split(req *Request, doc []byte) Delivery {
	p := &v.profile
	d := Delivery{Attempt: attempt(req, p.Attempt)}
	form := url.Values(nil)
	if req.isForm() {
		form, _ = url.ParseQuery(string(doc))
		if list := form["payload"]; len(list) == 1 {
			doc = []byte(list[0])
		} else {
			doc = nil
		}
	}
	at := place{header: req.Header, form: form}
	if valid(doc) {
		at.doc = doc
	}
	items, known := v.items(at.doc)
	switch {
	case len(items) > v.maxItems():
		d.Events = []Event{{Body: req.Body, Content: req.Body, Parked: ParkedTooManyItems}}
	case len(items) > 0:
		for i, item := range items {
			one := at
			one.doc = at.doc[item.from:item.to]
			d.Events = append(d.Events, v.event(one, req, item.shape, i, one.doc))
		}
	case known:
		d.Notice = true
	case len(p.Items) > 0 && len(p.IDs) == 0 && !p.ByBytes:
		d.Events = []Event{{Body: req.Body, Content: req.Body, Parked: ParkedUnparsable}}
	default:
		d.Events = []Event{v.event(at, req, &p.Shape, 0, req.Body)}
	}
	if p.notice(req) {
		d.Notice = true
	}
	return d
}

func (v *Verifier) maxItems() int {
	if v.source.MaxItems == 0 {
		return 5000
	}
	return v.source.MaxItems
}

func attempt(req *Request, name string) string {
	if name == "" {
		return ""
	}
	return req.Header.Get(name)
}

// notice tells the pings that providers send when a hook is set up.
func (p *Profile) notice(req *Request) bool {
	return p.Name == "github" && req.Header.Get("X-GitHub-Event") == "ping" ||
		p.Name == "bitbucket-server" && req.Header.Get("X-Event-Key") == "diagnostics:ping"
}

type item struct {
	span
	shape *Shape
}

// items are the places of the events in a document, in order. known tells whether one of the patterns led to an array.
func (v *Verifier) items(doc []byte) (list []item, known bool) {
	if doc == nil {
		return nil, false
	}
	for i := range v.profile.Items {
		pattern := &v.profile.Items[i]
		shape := &pattern.Shape
		if shape.empty() {
			shape = &v.profile.Shape
		}
		spans, ok := elements(doc, pattern.At)
		known = known || ok
		taken := list
		for _, s := range spans {
			if pattern.Rest && slices.ContainsFunc(taken, func(t item) bool { return s.from <= t.from && t.to <= s.to }) {
				continue
			}
			list = append(list, item{s, shape})
		}
	}
	slices.SortFunc(list, func(a, b item) int { return a.from - b.from })
	return list, known
}

func (s *Shape) empty() bool {
	return s.IDs == nil && !s.ByBytes && s.Tracks == nil && s.Type == nil && s.Mask == nil
}

// place is where the parts of an event are looked up.
type place struct {
	doc    []byte // nil: not JSON
	form   url.Values
	header http.Header
}

func (a *place) value(p Part) (Value, bool) {
	switch {
	case p.Header != "":
		list := a.header[textproto.CanonicalMIMEHeaderKey(p.Header)]
		if len(list) != 1 || list[0] == "" {
			return Value{}, false
		}
		return Value{list[0], true}, true
	case p.Form != "":
		list := a.form[p.Form]
		if len(list) != 1 || list[0] == "" {
			return Value{}, false
		}
		return Value{list[0], true}, true
	case a.doc == nil:
		return Value{}, false
	}
	return textAt(a.doc, p.JSON)
}

func (a *place) values(parts []Part) ([]Value, bool) {
	list := make([]Value, len(parts))
	for i, p := range parts {
		v, ok := a.value(p)
		if !ok || v.Text == "" {
			return nil, false
		}
		list[i] = v
	}
	return list, len(list) > 0
}

func (v *Verifier) event(at place, req *Request, s *Shape, index int, body []byte) Event {
	e := Event{Index: index, Body: body, Content: without(body, s.Mask)}
	if v.profile.Family == FamilyCert && v.profile.Header == "" {
		if text, err := snsText(body); err == nil {
			e.Content = []byte(text)
		}
	}
	fromBody := false
	for i, id := range s.IDs {
		fromBody = fromBody || slices.ContainsFunc(id.Parts, func(p Part) bool { return p.Header == "" })
		if list, ok := at.values(id.Parts); ok && v.idCounts(req, id) {
			e.IDs = append(e.IDs, Identity{tuple(i, list), join(list), v.idSigned(req, id)})
		}
	}
	if len(e.IDs) == 0 {
		v.withoutID(&e, s, fromBody && at.doc == nil && at.form == nil)
	}
	for _, part := range s.Type {
		if value, ok := at.value(part); ok {
			e.Type = value.Text
			break
		}
	}
	for i := range s.Tracks {
		if t := &s.Tracks[i]; at.track(t, &e) {
			break
		}
	}
	return e
}

// withoutID says what becomes of an event that nothing identifies.
func (v *Verifier) withoutID(e *Event, s *Shape, unparsable bool) {
	switch {
	case s.ByBytes || v.source.MissingID == "content":
		sum := sha256.Sum256(e.Content)
		text := hex.EncodeToString(sum[:])
		e.IDs = []Identity{{"bytes " + text, "sha256:" + text, v.profile.BodySigned()}}
	case unparsable:
		e.Parked = ParkedUnparsable
	default:
		e.Parked = ParkedNoID
	}
}

// idCounts leaves out the headers of the other way to sign: beside a signed id they are anyone's word.
func (v *Verifier) idCounts(req *Request, id ID) bool {
	switch name := id.Parts[0].Header; {
	case v.profile.Family == FamilyStandard && name == "svix-id":
		return !req.has("webhook-id") && !req.has("webhook-timestamp") && !req.has("webhook-signature")
	case v.profile.SecretForm == FormGitLab:
		return id.Signed == req.has("webhook-signature")
	}
	return true
}

// idSigned tells whether the code of this very request covers an id.
func (v *Verifier) idSigned(req *Request, id ID) bool {
	if v.profile.Family == FamilyHook0 {
		return hook0Covers(req.Header.Get(v.profile.Header), id.Parts[0].Header)
	}
	return id.Signed
}

// track sets lane and version by one track, if its lane is there.
func (a *place) track(t *Track, e *Event) bool {
	lane, ok := a.values(t.Lane)
	if !ok && len(t.Lane) > 0 {
		return false
	}
	if len(lane) > 0 {
		e.Lane = join(lane)
	}
	if version, ok := a.value(t.Version); ok && t.Version != (Part{}) {
		e.Version = version.Text
		if t.Ranks != nil {
			e.Version = ""
			if rank := slices.Index(t.Ranks, version.Text); rank >= 0 {
				e.Version = strconv.Itoa(rank)
			}
		}
	}
	return true
}

// tuple writes values so that no two lists of values read alike: each with its type and its length. which keeps apart
// the ids of one profile.
func tuple(which int, list []Value) string {
	var b strings.Builder
	b.WriteString("id" + strconv.Itoa(which))
	for _, v := range list {
		kind := " i"
		if v.IsString {
			kind = " s"
		}
		b.WriteString(kind + strconv.Itoa(len(v.Text)) + ":" + v.Text)
	}
	if b.Len() <= 255 {
		return b.String()
	}
	sum := sha256.Sum256([]byte(b.String()))
	return "long " + hex.EncodeToString(sum[:])
}

func join(list []Value) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = v.Text
	}
	return strings.Join(texts, "+")
}
