package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

// The references by which probes of one key speak to each other, whichever process asks. Only the order counts: a "not
// happened" that was heard before a send says nothing about it.
const (
	referSent  = "gateway.sent"  // id: the attempt. Written before every send but the first.
	referHeard = "gateway.heard" // id: store's clock in ms when "not happened" was first heard after the last send
)

// probe asks a route's upstream whether an effect happened.
type probe struct {
	g        *Gateway
	rt       *route
	template probeTemplate
	config   Probe
}

// asked is the snapshot: the request as rendered from the first call. Only {derived_key} is left open; the record has it.
type asked struct {
	Version int    `json:"v"`
	Method  string `json:"method"`
	Target  string `json:"target"`
}

// derivedPlace stands for the derived key in a stored target; it has bytes that no rendered value has.
const derivedPlace = "{derived_key}"

// snapshot renders the request. A value that would leave its place refuses the call before anything is claimed.
func (p *probe) snapshot(r *http.Request, key idempo.Key) ([]byte, error) {
	v := probeValues{key: key.ID, derivedKey: "d", tenant: key.Tenant, operation: p.rt.config.Operation, path: map[string]string{}}
	for _, name := range wildcards(p.rt.config.Match) {
		v.path[name] = r.PathValue(name)
	}
	if _, err := p.template.render(v); err != nil {
		return nil, err
	}
	open := p.template
	open.parts = slices.Clone(open.parts)
	for i, part := range open.parts {
		if part.name == "derived_key" {
			open.parts[i] = probePart{text: derivedPlace, query: part.query}
		}
	}
	target, err := open.render(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(asked{Version: 1, Method: p.template.method, Target: target})
}

// ask is the operation's ProbeFunc. Any process can ask for any record: all it needs is in there.
func (p *probe) ask(ctx context.Context, rec idempo.Record) (idempo.State, idempo.Result, error) {
	if rec.Attempt > int64(p.config.Attempts)+1 {
		return "", idempo.Result{}, errors.New("probe: asked often enough; a person has to settle it: idempo keys resolve " + rec.Ref())
	}
	var a asked
	if err := json.Unmarshal(rec.Snapshot, &a); err != nil || a.Version != 1 || (a.Method != http.MethodGet && a.Method != http.MethodHead) {
		return "", idempo.Result{}, errors.New("probe: no request is stored with the record")
	}
	target := strings.ReplaceAll(a.Target, derivedPlace, url.PathEscape(rec.DerivedKey))
	status, body, err := p.fetch(ctx, a.Method, target)
	if err != nil {
		return "", idempo.Result{}, fmt.Errorf("probe: %w", err)
	}
	doc, isJSON := document(body)
	happened, not := p.config.Happened.fits(status, doc, isJSON), p.config.NotHappened.fits(status, doc, isJSON)
	switch {
	case happened == not:
		return "", idempo.Result{}, fmt.Errorf("probe: status %d fits both or neither", status)
	case happened:
		return idempo.StateCompleted, p.result(doc, isJSON, body), nil
	case p.settled(ctx, rec):
		return idempo.StateFailed, idempo.Result{}, nil
	}
	return "", idempo.Result{}, errors.New("probe: not happened so far; it may still be on its way")
}

// settled tells whether a "not happened" is old enough to be believed. rec.StartedAt is when the last send may have begun,
// unless a take-over by a caller's retry has moved it to now; then the first time we heard it is noted with the record.
func (p *probe) settled(ctx context.Context, rec idempo.Record) bool {
	if !rec.StartedAt.IsZero() && rec.Now.Sub(rec.StartedAt) >= p.config.Settle {
		return true
	}
	for _, ref := range slices.Backward(rec.References) {
		switch ref.Type {
		case referSent:
			p.hear(ctx, rec)
			return false
		case referHeard:
			ms, err := strconv.ParseInt(ref.ID, 10, 64)
			return err == nil && rec.Now.Sub(time.UnixMilli(ms)) >= p.config.Settle
		}
	}
	p.hear(ctx, rec)
	return false
}

// hear notes the moment; a probe without a claim of its own, of the engine's background work, leaves StartedAt as it is
// and needs no note.
func (p *probe) hear(ctx context.Context, rec idempo.Record) {
	if claim := idempo.FromContext(ctx); claim != nil && !rec.Now.IsZero() {
		if err := claim.Refer(ctx, referHeard, strconv.FormatInt(rec.Now.UnixMilli(), 10)); err != nil {
			p.g.log.Warn("a probe's finding could not be noted; it is asked again", "key_ref", rec.Ref(), "error", err)
		}
	}
}

// fetch asks the upstream's addresses in turn. A redirect is not followed.
func (p *probe) fetch(ctx context.Context, method, target string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	path, query, _ := strings.Cut(target, "?")
	for _, t := range p.rt.up.order() {
		r := (&http.Request{Method: method, Host: t.url.Host, Header: http.Header{"User-Agent": nil}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			URL: &url.URL{Scheme: t.url.Scheme, Host: t.url.Host, Opaque: path, RawQuery: query}}).WithContext(ctx)
		res, rerr := p.rt.up.transport.RoundTrip(r)
		if rerr != nil {
			err = rerr
			continue
		}
		defer res.Body.Close()
		body, err = io.ReadAll(io.LimitReader(res.Body, wholeAnswer+1))
		if err != nil || len(body) > wholeAnswer {
			return 0, nil, errors.New("the answer is cut or over 1 MiB")
		}
		return res.StatusCode, body, nil
	}
	return 0, nil, err
}

// fits tells whether an answer matches.
func (m ProbeMatch) fits(status int, doc any, isJSON bool) bool {
	if !slices.Contains(m.Status, status) {
		return false
	}
	for pointer, want := range m.JSON {
		got, ok := point(doc, pointer)
		if !isJSON || !ok || !sameValue(got, want) {
			return false
		}
	}
	return true
}

// result makes the answer to keep. Without result, or where its body is not there, only the fact is kept.
func (p *probe) result(doc any, isJSON bool, raw []byte) idempo.Result {
	c := p.config.Result
	unknown := idempo.Result{Status: http.StatusOK, Header: [][2]string{{"Idempo-Result", idemhttp.ResultNotKept}}}
	if c == nil {
		return unknown
	}
	res := idempo.Result{Status: c.Status, Body: raw, Header: [][2]string{{"Content-Type", "application/json"}}}
	if c.Body != "" {
		v, ok := point(doc, c.Body)
		if !isJSON || !ok {
			return unknown
		}
		body, err := json.Marshal(v)
		if err != nil {
			return unknown
		}
		res.Body = body
	}
	if rule := p.rt.config.Resource; rule.ID != "" {
		if id, ok := pointText(res.Body, rule.ID); ok && len(id) <= 255 {
			res.Resource = idempo.Resource{Type: rule.Type, ID: id}
		}
	}
	return res
}
