package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ServeHTTP takes one delivery. The source is the path value "source" of the pattern, else the last part of the path.
//
// 2xx leaves only after the events are committed. A refusal, an unknown source and a body that is too large touch no store.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("source")
	if name == "" {
		name = path.Base(req.URL.Path)
	}
	r.serve(w, req, name)
}

// For is a handler that serves one source at any path.
func (r *Receiver) For(source string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, source) })
}

// answer is what a request gets, and what is told of it.
type answer struct {
	Reply
	header  [2]string // one more, or none
	close   bool
	outcome string
	reason  Reason
	secret  string
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request, name string) {
	start := time.Now()
	e := r.sources[name]
	a := r.take(w, req, e, start)
	if e == nil {
		name = ""
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if a.ContentType != "" {
		h.Set("Content-Type", a.ContentType)
	}
	if a.header[0] != "" {
		h.Set(a.header[0], a.header[1])
	}
	if a.close {
		h.Set("Connection", "close")
	}
	if len(a.Body) == 0 && a.Status != http.StatusNoContent {
		h.Set("Content-Length", "0")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
	if a.outcome == "refused" {
		r.cfg.Logger.Warn("webhook: refused a request", "source", name, "reason", string(a.reason), "status", a.Status)
	}
	if o := r.cfg.Observer; o != nil {
		o.Observe(req.Context(), Observation{Source: name, Outcome: a.outcome, Reason: a.reason, Secret: a.secret, Status: a.Status, Took: time.Since(start)})
	}
}

func later(outcome string) answer {
	return answer{Reply: Reply{Status: http.StatusServiceUnavailable}, header: [2]string{"Retry-After", "5"}, outcome: outcome}
}

func plainly(status int, outcome string) answer {
	return answer{Reply: Reply{Status: status}, outcome: outcome}
}

// take is the way of a request up to its answer.
func (r *Receiver) take(w http.ResponseWriter, req *http.Request, e *endpoint, arrived time.Time) answer {
	if e == nil {
		return plainly(http.StatusNotFound, "other")
	}
	if r.closing.Load() {
		return later("overload")
	}
	if !slices.Contains(e.methods(), req.Method) {
		a := plainly(http.StatusMethodNotAllowed, "other")
		a.header = [2]string{"Allow", strings.Join(e.methods(), ", ")}
		return a
	}
	switch strings.ToLower(req.Header.Get("Content-Encoding")) {
	case "", "identity", "gzip":
	default:
		return plainly(http.StatusUnsupportedMediaType, "other")
	}
	body, release, bad := r.read(w, req, e.v.profile.MaxBody)
	defer release()
	if bad != nil {
		return *bad
	}
	select { // only now: who sends slowly holds its few bytes, and no place that others need
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	default:
		return later("overload")
	}
	now := r.cfg.Now()
	got, err := Accept(e.v, RequestOf(req, body), now, 4*e.v.profile.MaxBody)
	switch reason, refused := IsRefusal(err); {
	case refused:
		a := plainly(http.StatusUnauthorized, "refused")
		if s := e.v.source.RefuseStatus; s != 0 {
			a.Status = s
		}
		a.reason = reason
		return a
	case err != nil:
		return later("store_error")
	case got.Reply != nil:
		return r.greeting(req.Context(), e, got, now)
	}
	later, interaction := e.deferral(req, body)
	if !interaction || len(got.Delivery.Events) != 1 {
		return r.keep(req, e, body, got, now, r.cfg.AnswerBudget)
	}
	until := arrived.Add(r.cfg.RespondBudget - storeSlack)
	a := r.keep(req, e, body, got, now, min(r.cfg.AnswerBudget, max(time.Until(until), time.Millisecond)))
	if a.Status/100 == 2 {
		if a.Reply = later; len(got.Delivery.Events[0].IDs) > 0 && a.outcome != "conflict" {
			ev := got.Delivery.Events[0]
			ev.Source, ev.Tenant, ev.Header = e.v.source.Name, e.tenant, req.Header.Clone()
			a.Reply = r.reply(req, e, ev, later, until)
		}
	}
	return a
}

// methods are those that a source takes.
func (e *endpoint) methods() []string {
	switch e.v.profile.Handshake {
	case HandshakeMeta, HandshakeX:
		return []string{http.MethodPost, http.MethodGet}
	}
	return []string{http.MethodPost}
}

// greeting answers a handshake: an unsigned one at most ten times a second, one of SNS after its URL was asked.
func (r *Receiver) greeting(ctx context.Context, e *endpoint, got Accepted, now time.Time) answer {
	a := answer{Reply: *got.Reply, outcome: "handshake", secret: got.Verdict.SecretID}
	if got.Verdict.Scheme == "" && !e.greeted.take(now) {
		return plainly(http.StatusTooManyRequests, "overload")
	}
	if a.Status == http.StatusForbidden {
		a.outcome, a.reason = "refused", ReasonWrongToken
	}
	if got.Confirm == "" {
		return a
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, got.Confirm, nil)
	if err != nil {
		return later("store_error")
	}
	res, err := r.confirm.Do(ask)
	if err != nil {
		return later("store_error")
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode/100 != 2 {
		return later("store_error")
	}
	return a
}

// read takes the body under the limits of size, time and memory. release gives the memory back.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request, limit int64) (body []byte, release func(), bad *answer) {
	held := int64(0)
	release = func() { r.buffered.Add(-held) }
	refuse := func(a answer) ([]byte, func(), *answer) {
		a.close = true // what is left of the body is not read
		return nil, release, &a
	}
	if req.ContentLength > limit {
		return refuse(plainly(http.StatusRequestEntityTooLarge, "too_large"))
	}
	hold := func(n int64) bool {
		if r.buffered.Add(n) > r.cfg.MaxBuffered {
			r.buffered.Add(-n)
			return false
		}
		held += n
		return true
	}
	const first = 4 << 10 // what a sender may hold before it has sent anything
	most := limit + 1     // one more, to see that there is more
	if req.ContentLength >= 0 {
		most = req.ContentLength + 1
	}
	size := min(first, most)
	if !hold(size) {
		return refuse(later("overload"))
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(r.cfg.ReadTimeout)) // without it the server's own deadline holds
	body = make([]byte, 0, size)
	for {
		if len(body) == cap(body) {
			more := min(max(int64(cap(body)), first), most-int64(cap(body)))
			if more <= 0 { // more than was declared: the server would not let it through
				return refuse(plainly(http.StatusBadRequest, "other"))
			}
			if !hold(more) {
				return refuse(later("overload"))
			}
			body = append(make([]byte, 0, int64(cap(body))+more), body...)
		}
		n, err := req.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return refuse(plainly(http.StatusRequestEntityTooLarge, "too_large"))
		case err == io.EOF: //nolint:errorlint // as io.Reader says it
			return body, release, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return refuse(plainly(http.StatusRequestTimeout, "other"))
		case err != nil:
			return refuse(plainly(http.StatusBadRequest, "other"))
		}
	}
}

// success is the provider's own way to hear that all is well.
func (e *endpoint) success(body []byte) Reply {
	s := e.v.profile.Success
	if e.v.profile.Handshake == HandshakeDiscord && valid(body) {
		if _, event := find(body, span{0, len(body)}, "/event"); event {
			return Reply{Status: http.StatusNoContent}
		}
	}
	return Reply{Status: s.Status, ContentType: s.ContentType, Body: []byte(s.Body)}
}

// header of a request as it is stored: credentials, codes and compared tokens are redacted.
func (e *endpoint) stored(h http.Header) [][2]string {
	secret := []string{"Authorization", "Proxy-Authorization", "Cookie", e.v.profile.Header, "Webhook-Signature", "Svix-Signature",
		"X-Hub-Signature", "X-Hub-Signature-256", "X-Hubspot-Signature", "X-Gitea-Signature", "X-Gogs-Signature", "X-Forgejo-Signature"}
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	var list [][2]string
	for _, name := range names {
		hidden := slices.ContainsFunc(secret, func(s string) bool { return strings.EqualFold(s, name) })
		for _, value := range h[name] {
			if hidden {
				value = "[redacted]"
			}
			list = append(list, [2]string{original + name, value})
		}
	}
	return list
}

// original leads the names of the request's own headers in a stored event. Without it an unsigned header could pass for
// an attribute of the message, its identity above all.
const original = "original-"

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
