package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/safedial"
)

// Forward sends the events of a source to an HTTP target instead of a handler.
type Forward struct {
	URL string
	// TargetDedups says whether the target has one effect for one Idempotency-Key, however often it comes. There is no
	// default. true: what got no certain answer is sent again with the same key. false: it is in doubt, and waits for a
	// person; only what certainly did not reach the target is sent again.
	TargetDedups *bool
	Allow        []netip.Prefix // networks besides public ones
	Ports        []int          // none: 80 and 443
	Timeout      time.Duration  // of one attempt. 0 means 30s
	Concurrency  int            // attempts at once. 0 means 8
	Signing      []Secret       // Standard Webhooks secrets; each active one signs
	// Breaker is after how many failures in a row the target rests, 0 means 10, and BreakerPause for how long at first, 0
	// means 30s; it doubles up to 10 minutes. What waits for it is retrying and uses up no attempt.
	Breaker      int
	BreakerPause time.Duration
}

// target is where a source forwards to.
type target struct {
	f       Forward
	client  *http.Client
	signer  *Signer
	slots   chan struct{}
	now     func() time.Time
	in      *inbox.Inbox
	breaker *breaker
	alarm   func(text string)

	mu     sync.Mutex
	looked time.Time // when it was last asked whether the target has said 410
	gone   bool
}

// Why an event waits for its target, or does no longer.
const (
	ReasonResting = "target resting" // retrying: the target fails again and again
	ReasonGone    = "gone"           // dead: the target said 410
)

const keptReply = 1 << 10

// checkForward judges a target before anything is sent.
func (s *Source) checkForward(f *faults) {
	w := s.Forward
	if w == nil {
		return
	}
	if w.TargetDedups == nil {
		f.add("forward.target_dedups", "is missing, and nobody can guess it",
			"write true where the target has one effect for one Idempotency-Key (what got no answer is sent again), or false (it is in doubt and waits for a person)")
	}
	if s.Order.versioned() {
		f.add("order.mode", s.Order.Mode+" needs the version to commit with the effect, which an HTTP target cannot", "use serial or none")
	}
	if s.Order.Mode == OrderRefetch {
		f.add("order.mode", "refetch needs a hook in Go, and the source forwards", "use serial: the target can fetch by itself")
	}
	if w.Timeout < 0 || w.Concurrency < 0 || w.Breaker < 0 || w.BreakerPause < 0 {
		f.add("forward", "timeout, concurrency or breaker is negative", "write a duration, a number")
	}
	u, err := url.Parse(w.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		f.add("forward.url", "is no http or https URL", "write for example http://127.0.0.1:9000/in")
		return
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if n, _ := strconv.Atoi(port); len(w.Ports) == 0 && n != 80 && n != 443 || len(w.Ports) > 0 && !slices.Contains(w.Ports, n) {
		f.add("forward.url", "its port "+port+" is not allowed", "write ports: ["+port+"]")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return // a name is judged when it is dialled
	}
	if safedial.Judge(addr, w.Allow) == nil {
		return
	}
	fix := "no setting opens it"
	one := netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
	if safedial.Judge(addr, []netip.Prefix{one}) == nil {
		fix = fmt.Sprintf("write allow: [%q] where you mean it", one)
	}
	f.add("forward.url", strings.TrimPrefix(safedial.Judge(addr, w.Allow).Error(), "target not allowed: ")+" is not allowed", fix)
}

// newTarget reads the signing secrets and makes the guarded client.
func newTarget(s *Source, now func() time.Time, alarm func(string)) (*target, error) {
	w := *s.Forward
	f := &faults{source: s.Name}
	t := &target{f: w, now: now, alarm: alarm, breaker: newBreaker(w.Breaker, w.BreakerPause, now), slots: make(chan struct{}, cmp.Or(w.Concurrency, 8)),
		client: safedial.NewClient(safedial.Options{Timeout: cmp.Or(w.Timeout, 30*time.Second), Dialer: safedial.Dialer{Allow: w.Allow, Ports: w.Ports}})}
	for i, secret := range w.Signing {
		if _, err := NewSigner(secret); err != nil {
			_, err := readKey(secret, FormStandard, AlgSHA256)
			f.add(fmt.Sprintf("forward.signing[%d] %s", i, secret.id), problemOf(err), "give whsec_ and base64 of 24 to 64 bytes")
		}
	}
	t.signer, _ = NewSigner(w.Signing...)
	return t, f.err()
}

func problemOf(err error) string {
	if err == nil {
		return errForm.Error()
	}
	return err.Error()
}

// send is one attempt. Its error says what is known of the effect: marked idempo.NothingHappened, it is tried again.
func (t *target) send(ctx context.Context, m inbox.Message) error {
	if gone, err := t.isGone(ctx); gone || err != nil {
		if err != nil {
			return idempo.NothingHappened(err)
		}
		return inbox.Resting("target "+ReasonGone, time.Minute)
	}
	if wait, ok := t.breaker.enter(); !ok {
		return inbox.Resting(ReasonResting, wait)
	}
	err := t.attempt(ctx, m)
	opened, closed := t.breaker.left(err != nil)
	switch {
	case opened:
		t.alarm("the target rests: it failed again and again; events wait and use up no attempt")
	case closed:
		t.alarm("the target is back")
	}
	return err
}

// isGone tells whether the target has said 410 for an event that nobody has dealt with yet, after a restart, too. It is
// asked of the store once a minute, and at once after a 410.
func (t *target) isGone(ctx context.Context) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.now(); !t.gone && !t.looked.IsZero() && now.Sub(t.looked).Abs() < time.Minute {
		return false, nil
	}
	p := inbox.ListParams{Statuses: []inbox.Status{inbox.StatusDead}, Newest: true, WithoutBody: true, Limit: 100}
	for {
		rs, err := t.in.Receipts(context.WithoutCancel(ctx), p)
		if err != nil {
			return false, err
		}
		if t.gone = slices.ContainsFunc(rs, func(r inbox.Receipt) bool { return r.Reason == ReasonGone }); t.gone || len(rs) < p.Limit {
			break
		}
		p.After = rs[len(rs)-1].Seq
	}
	t.looked = t.now()
	return t.gone, nil
}

// attempt is one request, at a place of its own.
func (t *target) attempt(ctx context.Context, m inbox.Message) error {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return idempo.NothingHappened(context.Cause(ctx))
	}
	claim := idempo.FromContext(ctx)
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.f.URL, io.NopCloser(bytes.NewReader(m.Body)))
	if err != nil {
		return idempo.NothingHappened(err)
	}
	req.ContentLength = int64(len(m.Body))
	if len(m.Body) == 0 {
		req.Body = http.NoBody
	}
	req.Close = true // a connection of its own: the transport never sends again by itself
	req.Header = t.headers(m, claim)
	res, err := t.client.Do(req)
	if err != nil {
		err = fmt.Errorf("forward: %w", safedial.Bare(err))
		if !wrote.Load() || *t.f.TargetDedups {
			return idempo.NothingHappened(err)
		}
		return err
	}
	defer res.Body.Close()
	kept, _ := io.ReadAll(io.LimitReader(res.Body, keptReply))
	_, _ = io.Copy(io.Discard, res.Body)
	return t.answered(ctx, res, kept)
}

// answered is the table of what a target says.
func (t *target) answered(ctx context.Context, res *http.Response, kept []byte) error {
	failed := fmt.Errorf("forward: the target answered %d", res.StatusCode)
	switch status := res.StatusCode; {
	case status/100 == 2:
		inbox.SetResult(ctx, idempo.Result{Status: status, Body: kept})
		return nil
	case status == http.StatusGone:
		t.alarm("the target said 410: nothing more is sent until the events that are dead, gone are replayed or skipped")
		t.mu.Lock()
		t.gone = true
		t.mu.Unlock()
		return inbox.Dead(ReasonGone, idempo.NothingHappened(errors.New("the target answered 410")))
	case status/100 == 5 && status != http.StatusServiceUnavailable && !*t.f.TargetDedups:
		return failed // it may have acted before it failed
	}
	if d, ok := safedial.RetryAfter(res.Header, t.now()); ok {
		return inbox.RetryIn(d, idempo.NothingHappened(failed))
	}
	return idempo.NothingHappened(failed)
}

// headers of an attempt: the same key each time, a fresh time and signature, and what came with the event.
func (t *target) headers(m inbox.Message, claim *idempo.Claim) http.Header {
	h := http.Header{}
	id := claim.Derive("")
	h.Set("User-Agent", "idempo")
	h.Set("Idempotency-Key", id)
	t.signer.Sign(h, id, t.now(), m.Body)
	k := claim.Key()
	if first := idempo.DeriveKey(k.Tenant, k.Operation, k.ID, "", "forward", "1", ""); first != id { // a person runs it once more
		h.Set("Idempo-Original-Id", first)
	}
	h.Set("Idempo-Source", m.Source)
	receipt, _ := m.Header("webhook-receipt")
	h.Set("Idempo-Receipt", receipt)
	h.Set("Idempo-Attempt", strconv.FormatInt(claim.Attempt(), 10))
	for _, pair := range m.Headers {
		name, ok := strings.CutPrefix(pair[0], original)
		if !ok || pair[1] == "[redacted]" {
			continue
		}
		switch strings.ToLower(name) {
		case "content-type", "content-encoding":
			h.Set(name, pair[1])
		case "host", "content-length", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "proxy-authenticate":
		default:
			h.Add("Idempo-Original-"+name, pair[1])
		}
	}
	return h
}
