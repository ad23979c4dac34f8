package dashboard_test

import (
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// bed is a dashboard over a memory store, and a browser of a kind: a client that keeps cookies and follows nothing.
type bed struct {
	*testing.T
	store  *memstore.Store
	ops    *operator.Service
	ui     *dashboard.Handler
	server *httptest.Server
	http   *http.Client
	prefix string
	by     atomic.Pointer[dashboard.Principal]
	ahead  atomic.Int64 // of the store's clock, before the system's
}

func as(role operator.Role, tenants ...string) dashboard.Principal {
	return dashboard.Principal{Actor: "ann@host", Role: role, Tenants: tenants}
}

func newBed(t *testing.T, change func(c *dashboard.Config)) *bed {
	t.Helper()
	b := &bed{T: t, prefix: "/ops/idempo"}
	b.be(as(operator.RoleAdmin))
	b.store = memstore.New(memstore.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }})
	var err error
	if b.ops, err = operator.New(b.store, operator.Config{StoredFunc: func(k idempo.Key, _ string) []idempo.Key {
		d := digest(k.Tenant, k.ID)
		return []idempo.Key{{Tenant: k.Tenant, Operation: k.Operation, ID: string(d[:])}}
	}}); err != nil {
		t.Fatal(err)
	}
	c := dashboard.Config{Operator: b.ops, Prefix: b.prefix, PollEvery: 10 * time.Millisecond, Authorize: func(*http.Request) (dashboard.Principal, error) {
		if p := b.by.Load(); p.Actor != "" {
			return *p, nil
		}
		return dashboard.Principal{}, errors.New("nobody")
	}}
	if change != nil {
		change(&c)
	}
	b.prefix = c.Prefix
	if b.ui, err = dashboard.New(c); err != nil {
		t.Fatal(err)
	}
	b.server = httptest.NewServer(b.ui)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.http = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() { b.ui.Close(); b.server.CloseClientConnections(); b.server.Close() })
	return b
}

func (b *bed) be(p dashboard.Principal) { b.by.Store(&p) }

func digest(tenant, id string) [32]byte { return sha256.Sum256([]byte(tenant + "\x00" + id)) }

func (b *bed) claim(tenant, operation, id string) idempo.AcquireParams {
	b.Helper()
	d := digest(tenant, id)
	p := idempo.AcquireParams{Key: idempo.Key{Tenant: tenant, Operation: operation, ID: string(d[:])}, Hash: d[:], Recipe: "r", Guard: idempo.GuardLeased,
		OnCrash: idempo.OnCrashHold, Lease: time.Hour, Owner: "host/1", Surface: "http"}
	copy(p.Token[:], d[:])
	a, err := b.store.Acquire(b.Context(), p)
	if err != nil || a.Verdict != idempo.VerdictRun {
		b.Fatal(a.Verdict, err)
	}
	return p
}

func (b *bed) doubt(tenant, id string) string {
	b.Helper()
	p := b.claim(tenant, "pay", id)
	if _, err := b.store.Release(b.Context(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateInDoubt, Note: "cut off"}); err != nil {
		b.Fatal(err)
	}
	return p.Key.Ref()
}

func (b *bed) done(tenant, id string, r idempo.Result) string {
	b.Helper()
	p := b.claim(tenant, "pay", id)
	if _, err := b.store.Complete(b.Context(), idempo.CompleteParams{Key: p.Key, Token: p.Token, Won: p, Attempt: 1, Kept: true, Retention: time.Hour, Tombstone: 10 * time.Hour,
		Result: r, Size: int64(len(r.Body))}); err != nil {
		b.Fatal(err)
	}
	return p.Key.Ref()
}

// answered is an answer, read.
type answered struct {
	status int
	head   http.Header
	body   string
}

func (b *bed) send(r *http.Request) answered {
	b.Helper()
	resp, err := b.http.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header, string(body)}
}

func (b *bed) request(method, path, body string) *http.Request {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.server.URL+b.prefix+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *bed) get(path string) answered { b.Helper(); return b.send(b.request("GET", path, "")) }

func (b *bed) page(path string, want ...string) string {
	b.Helper()
	a := b.get(path)
	if a.status != 200 {
		b.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	for _, w := range want {
		if !strings.Contains(a.body, w) {
			b.Errorf("%s does not say %q", path, w)
		}
	}
	return a.body
}

var formToken = regexp.MustCompile(`name="form" value="([^"]+)"`)

// post sends a form from a page of the same origin, with the token of page.
func (b *bed) post(page, path string, form url.Values) answered {
	b.Helper()
	m := formToken.FindStringSubmatch(b.page(page))
	if m == nil {
		b.Fatalf("%s has no form", page)
	}
	form.Set("form", m[1])
	return b.send(b.form(path, form))
}

func (b *bed) form(path string, form url.Values) *http.Request {
	b.Helper()
	r := b.request("POST", path, form.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", b.server.URL)
	return r
}

func (b *bed) state(ref string) idempo.State {
	b.Helper()
	s, err := b.ops.Show(b.Context(), operator.ShowParams{By: as(operator.RoleAdmin), Target: operator.Target{Ref: ref}})
	if err != nil {
		return ""
	}
	return s.Record.State
}

func (b *bed) audit() []operator.Entry {
	b.Helper()
	page, err := b.ops.Audit(b.Context(), operator.ReadAuditParams{By: as(operator.RoleAdmin)})
	if err != nil {
		b.Fatal(err)
	}
	return page.Entries
}

func failed(reason string) url.Values {
	return url.Values{"attempt": {"1"}, "state": {"in_doubt"}, "to": {"failed"}, "reason": {reason}}
}

func says(t *testing.T, a answered, status int, want ...string) {
	t.Helper()
	if a.status != status {
		t.Errorf("status %d, want %d: %.400s", a.status, status, a.body)
	}
	for _, w := range want {
		if !strings.Contains(a.body, w) {
			t.Errorf("the answer does not say %q: %.3000s", w, a.body)
		}
	}
}
