package gate_test

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/idempo/idempo/cmd/idempo/internal/gate"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/operator"
)

const token = "0123456789ABCDEFGHIJ"

// bed is a gate and its clock.
type bed struct {
	*testing.T
	g   *gate.Gate
	now time.Time
}

func newBed(t *testing.T, c gate.Config) *bed {
	t.Helper()
	b := &bed{T: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	c.Clock = func() time.Time { return b.now }
	var err error
	if b.g, err = gate.New(c); err != nil {
		t.Fatal(err)
	}
	return b
}

// from is a request of an address with headers in pairs.
func from(address string, head ...string) *http.Request {
	r := httptest.NewRequest("GET", "http://127.0.0.1:7070/keys", nil)
	r.RemoteAddr = address + ":4711"
	for i := 0; i < len(head); i += 2 {
		r.Header.Add(head[i], head[i+1])
	}
	return r
}

// who is the actor of a request, "" where it is refused, and the status of the refusal.
func (b *bed) who(r *http.Request) (string, int) {
	b.Helper()
	by, err := b.g.Authorize(r)
	if d, ok := errors.AsType[*dashboard.Denied](err); ok {
		return "", cmp.Or(d.Status, 401)
	}
	return by.Actor + " " + string(by.Role), 200
}

func (b *bed) post(path, address string, form url.Values, head ...string) *httptest.ResponseRecorder {
	b.Helper()
	r := httptest.NewRequest("POST", "http://127.0.0.1:7070"+path, strings.NewReader(form.Encode()))
	r.RemoteAddr = address + ":4711"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://127.0.0.1:7070")
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	b.g.ServeHTTP(w, r)
	return w
}

func TestToken(t *testing.T) {
	t.Parallel()
	b := newBed(t, gate.Config{Mode: "token", Token: token, Actor: "root"})
	t.Run("[operations/UI1] a link logs in once, by POST; the page it leads to changes nothing", func(t *testing.T) {
		code := b.g.Code()
		for range 3 { // a preview of the link uses nothing up
			w := httptest.NewRecorder()
			b.g.ServeHTTP(w, httptest.NewRequest("GET", "/login?code="+code, nil))
			if w.Code != 200 || w.Header().Get("Set-Cookie") != "" || !strings.Contains(w.Body.String(), code) {
				t.Fatal(w)
			}
		}
		form := url.Values{"code": {code}, "name": {"ann"}, "next": {"/keys?state=in_doubt"}}
		w := b.post("/login", "127.0.0.1", form)
		cookie := w.Header().Get("Set-Cookie")
		if w.Code != 303 || w.Header().Get("Location") != "/keys?state=in_doubt" || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") {
			t.Fatal(w)
		}
		in := from("127.0.0.1", "Cookie", strings.SplitN(cookie, ";", 2)[0])
		if who, _ := b.who(in); who != "ann admin" {
			t.Error(who)
		}
		if w := b.post("/login", "127.0.0.1", form); w.Code != 401 || w.Header().Get("Set-Cookie") != "" {
			t.Error("twice:", w)
		}
		if w := b.post("/login/out", "127.0.0.1", nil, "Cookie", in.Header.Get("Cookie")); w.Code != 303 {
			t.Error(w)
		}
		if who, _ := b.who(in); who != "" {
			t.Error("logged out, and still", who)
		}
	})
	t.Run("[operations/UI1] links and sessions end", func(t *testing.T) {
		code := b.g.Code()
		b.now = b.now.Add(time.Hour)
		if w := b.post("/login", "127.0.0.2", url.Values{"code": {code}, "name": {"ann"}}); w.Code != 401 {
			t.Error(w)
		}
		w := b.post("/login", "127.0.0.2", url.Values{"token": {token}, "name": {"ann"}})
		in := from("127.0.0.2", "Cookie", strings.SplitN(w.Header().Get("Set-Cookie"), ";", 2)[0])
		if who, _ := b.who(in); who != "ann admin" {
			t.Error(who)
		}
		b.now = b.now.Add(12 * time.Hour)
		if who, _ := b.who(in); who != "" {
			t.Error(who)
		}
	})
	t.Run("[operations/UI2] [operations/OP30] a bearer token; anything else, and cookies beside it, are refused", func(t *testing.T) {
		w := b.post("/login", "127.0.0.3", url.Values{"token": {token}, "name": {"ann"}})
		cookie := strings.SplitN(w.Header().Get("Set-Cookie"), ";", 2)[0]
		if who, _ := b.who(from("127.0.0.3", "Authorization", "Bearer "+token)); who != "token admin" {
			t.Error(who)
		}
		for _, head := range [][]string{nil, {"Authorization", "Bearer wrong", "Cookie", cookie}, {"Authorization", "Basic " + token}, {"Authorization", "Bearer"}, {"Cookie", "idempo_session=" + token}} {
			if who, status := b.who(from("127.0.0.3", head...)); who != "" || status != 401 {
				t.Error(head, who, status)
			}
		}
	})
	t.Run("[operations/UI2] [operations/OP30] ten failures a minute from one address are the end, also for what would be right", func(t *testing.T) {
		wrong, right := url.Values{"token": {"wrong"}, "name": {"eve"}}, url.Values{"token": {token}, "name": {"ann"}}
		for i := range 10 {
			if w := b.post("/login", "10.0.0.9", wrong); w.Code != 401 {
				t.Fatal(i, w)
			}
		}
		if w := b.post("/login", "10.0.0.9", right); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Error(w)
		}
		if _, status := b.who(from("10.0.0.9", "Authorization", "Bearer "+token)); status != 429 {
			t.Error(status)
		}
		if w := b.post("/login", "10.0.0.8", right); w.Code != 303 {
			t.Error("another address:", w)
		}
		b.now = b.now.Add(time.Minute)
		if w := b.post("/login", "10.0.0.9", right); w.Code != 303 {
			t.Error("a minute later:", w)
		}
	})
	t.Run("[operations/UI4] a login from another site, or without a name, is none; next leads nowhere else", func(t *testing.T) {
		right := url.Values{"token": {token}, "name": {"ann"}}
		if w := b.post("/login", "10.1.0.1", right, "Origin", "https://evil.example"); w.Code != 403 || w.Header().Get("Set-Cookie") != "" {
			t.Error(w)
		}
		if w := b.post("/login", "10.1.0.1", url.Values{"token": {token}, "name": {" \n"}}); w.Code != 422 {
			t.Error(w)
		}
		for _, next := range []string{"//evil.example", "https://evil.example", `/\evil.example`, "evil", "/\nx"} {
			right.Set("next", next)
			if w := b.post("/login", "10.1.0.1", right); w.Header().Get("Location") != "/" {
				t.Error(next, w.Header())
			}
		}
	})
}

func TestBasic(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte("correct horse"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, gate.Config{Mode: "basic", Users: map[string]gate.User{"ann": {Password: string(hash), Role: operator.RoleOperator, Tenants: []string{"acme"}}}})
	login := func(name, password string) *http.Request {
		r := from("10.0.0.1")
		r.SetBasicAuth(name, password)
		return r
	}
	t.Run("[operations/UI2] hashed passwords", func(t *testing.T) {
		for range 2 { // the second one is believed without a check
			if by, err := b.g.Authorize(login("ann", "correct horse")); err != nil || by.Actor != "ann" || by.Role != operator.RoleOperator || by.Tenants[0] != "acme" {
				t.Error(by, err)
			}
		}
		for _, r := range []*http.Request{login("ann", "wrong"), login("ann", ""), login("ann", string(hash)), login("eve", "correct horse"), login("", ""), from("10.0.0.1"), from("10.0.0.1", "Authorization", "Bearer x")} {
			if who, status := b.who(r); who != "" || status != 401 {
				t.Error(r.Header, who, status)
			}
		}
	})
	t.Run("[operations/UI2] ten failures a minute", func(t *testing.T) {
		b.now = b.now.Add(time.Minute)
		for range 10 {
			b.who(login("ann", "wrong"))
		}
		if _, status := b.who(login("ann", "correct horse")); status != 429 {
			t.Error(status)
		}
	})
}

func TestHeader(t *testing.T) {
	t.Parallel()
	b := newBed(t, gate.Config{Mode: "header", Header: "X-Forwarded-User", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		Users: map[string]gate.User{"ann": {Role: operator.RoleAdmin}, "*": {Role: operator.RoleViewer}}})
	t.Run("[operations/UI2] the header counts from a trusted proxy, once and not empty", func(t *testing.T) {
		for want, r := range map[string]*http.Request{"ann admin": from("10.0.0.7", "X-Forwarded-User", "ann"), "bob viewer": from("10.0.0.7", "X-Forwarded-User", "bob")} {
			if who, _ := b.who(r); who != want {
				t.Error(who, want)
			}
		}
		for _, r := range []*http.Request{from("10.0.1.7", "X-Forwarded-User", "ann"), from("127.0.0.1", "X-Forwarded-User", "ann"), from("10.0.0.7"), from("10.0.0.7", "X-Forwarded-User", ""),
			from("10.0.0.7", "X-Forwarded-User", "ann", "X-Forwarded-User", "ann"), from("10.0.0.7", "X-Forwarded-User", "ann", "x-forwarded-user", "eve")} {
			if who, status := b.who(r); who != "" || status != 401 {
				t.Error(r.RemoteAddr, r.Header, who, status)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []gate.Config{{}, {Mode: "token"}, {Mode: "token", Token: "short"}, {Mode: "basic"}, {Mode: "header", Header: "X"}, {Mode: "what"}} {
		if _, err := gate.New(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}
