package contract_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/inbox"
)

func TestPrint(t *testing.T) {
	t.Parallel()
	c := shop(t)
	t.Run("[operations/CD4] Markdown: guard, scope, times, each status with what to do, crash, an example; in the order of paths", func(t *testing.T) {
		md := c.Markdown()
		same(t, string(md), shopMarkdown)
		if again := shop(t).Markdown(); !bytes.Equal(md, again) {
			t.Error("two prints of one service differ")
		}
		for _, want := range []string{"leased: one started effect", "| not deduplicated |", "share tenant, operation, key", "24 h (PT24H)", "then refused for | ever", "everything rolls back", "| 410 |", "same key?", "curl -X POST"} {
			if !strings.Contains(string(md), want) {
				t.Errorf("no %q", want)
			}
		}
	})
	t.Run("[operations/CD5] no document says exactly once", func(t *testing.T) {
		for name, b := range map[string][]byte{"openapi": contract.YAML(c.OpenAPI()), "asyncapi": contract.YAML(c.AsyncAPI()), "markdown": c.Markdown(), "json": c.JSON()} {
			if text := strings.ToLower(string(b)); strings.Contains(text, "exactly once") || strings.Contains(text, "exactly-once") {
				t.Error(name)
			}
		}
	})
	t.Run("the document of the shop", func(t *testing.T) { same(t, string(contract.YAML(c.OpenAPI())), shopOpenAPI) })
	t.Run("JSON, read again, says the same", func(t *testing.T) {
		back, err := contract.FromJSON(c.JSON())
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Errorf("%v\n%s", err, back.JSON())
		}
		if _, err := contract.FromJSON([]byte("[]")); err == nil {
			t.Error("a list is read")
		}
	})
	t.Run("what lint asks, its own documents answer", func(t *testing.T) {
		found, err := load(t, string(contract.JSON(c.OpenAPI()))).Lint(contract.LintOptions{})
		if err != nil || len(found) != 0 {
			t.Error(err, found)
		}
	})
	t.Run("an operation that is mounted nowhere", func(t *testing.T) {
		m, _, _ := middleware(t, engine(t, idempo.Config{}), wrapped{idempo.Operation{Name: "a", Guard: idempo.GuardAtomic}, idemhttp.Rules{}, nil})
		if err := contract.New("x", "1").Middleware(m, nil); err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Error(err)
		}
	})
}

func TestFacts(t *testing.T) {
	t.Parallel()
	t.Run("a change of guard, retention or status at the engine is a change of every form", func(t *testing.T) {
		print := func(op idempo.Operation, r idemhttp.Rules) []string {
			op.Name = "pay"
			m, at, _ := middleware(t, engine(t, idempo.Config{}), wrapped{op, r, []string{"POST /pay"}})
			c := contract.New("x", "1")
			if err := c.Middleware(m, at); err != nil {
				t.Fatal(err)
			}
			return []string{string(contract.YAML(c.OpenAPI())), string(c.Markdown()), string(c.JSON())}
		}
		base := print(idempo.Operation{Guard: idempo.GuardAtomic}, idemhttp.Rules{})
		for name, other := range map[string][]string{
			"guard":     print(idempo.Operation{Guard: idempo.GuardLeased}, idemhttp.Rules{}),
			"retention": print(idempo.Operation{Guard: idempo.GuardAtomic, Retention: time.Hour}, idemhttp.Rules{}),
			"tombstone": print(idempo.Operation{Guard: idempo.GuardAtomic, Tombstone: idempo.Forever}, idemhttp.Rules{}),
			"status":    print(idempo.Operation{Guard: idempo.GuardAtomic}, idemhttp.Rules{MismatchStatus: 400}),
			"kept":      print(idempo.Operation{Guard: idempo.GuardAtomic}, idemhttp.Rules{Outcomes: map[int]idemhttp.Outcome{404: idemhttp.OutcomeRelease}}),
		} {
			for i := range base {
				if base[i] == other[i] {
					t.Errorf("%s: form %d does not change", name, i)
				}
			}
		}
	})
	t.Run("where keys come from", func(t *testing.T) {
		ok := func(r idemhttp.Rules, in, name string, min, max int) {
			t.Helper()
			m, at, _ := middleware(t, engine(t, idempo.Config{}), wrapped{idempo.Operation{Name: "a", Guard: idempo.GuardAtomic}, r, []string{"POST /a/{account}"}})
			c := contract.New("x", "1")
			if err := c.Middleware(m, at); err != nil {
				t.Fatal(err)
			}
			if k := c.Endpoints[0].Statement.Key; k.In != in || k.Name != name || k.MinLength != min || k.MaxLength != max {
				t.Errorf("%+v: %+v", r, k)
			}
		}
		ok(idemhttp.Rules{}, "header", "Idempotency-Key", 1, 255)
		ok(idemhttp.Rules{Profile: "uuid"}, "header", "Idempotency-Key", 36, 36)
		ok(idemhttp.Rules{Profile: "paypal"}, "header", "PayPal-Request-Id", 1, 108)
		ok(idemhttp.Rules{Profile: "square"}, "body", "/idempotency_key", 1, 45)
		ok(idemhttp.Rules{Profile: "aws"}, "query", "ClientToken", 1, 64)
		ok(idemhttp.Rules{KeyFrom: []string{"query:token"}}, "query", "token", 1, 1024)
		ok(idemhttp.Rules{KeyFrom: []string{"path:account", "body:/id"}}, "parts", "path:account + body:/id", 1, 1024)
		ok(idemhttp.Rules{KeyPointer: "/id", MaxKey: 20}, "body", "/id", 1, 20)
	})
	t.Run("patterns of ServeMux as paths", func(t *testing.T) {
		ok := func(pattern, method, path string, subtree bool) {
			t.Helper()
			c := contract.New("x", "1")
			c.Natural(pattern, "r")
			if e := c.Endpoints[0]; e.Method != method || e.Path != path || e.Subtree != subtree {
				t.Errorf("%s: %+v", pattern, e)
			}
		}
		ok("PUT /a/{b}", "PUT", "/a/{b}", false)
		ok("PUT example.com/a", "PUT", "/a", false)
		ok("/", "", "/{rest}", true)
		ok("/a/{$}", "", "/a/", false)
		ok("PUT /a/{b...}", "PUT", "/a/{b}", true)
	})
	t.Run("a method that is safe is no matter", func(t *testing.T) {
		c := contract.New("x", "1")
		c.OptOut("GET /a", "r")
		if len(c.Endpoints) != 0 {
			t.Error(c.Endpoints)
		}
	})
}

func TestInbox(t *testing.T) {
	t.Parallel()
	e := engine(t, idempo.Config{})
	in, err := inbox.New(e, inbox.Options{Subscriber: "billing", Order: inbox.OrderLatest, MaxAttempts: 4, Retention: 2 * time.Hour, Tombstone: idempo.Forever})
	if err != nil {
		t.Fatal(err)
	}
	loose, err := inbox.New(e, inbox.Options{Subscriber: "mail", Order: inbox.OrderNone, MissingID: inbox.MissingDigest, Fingerprint: inbox.FingerprintOff, Guard: idempo.GuardLeased})
	if err != nil {
		t.Fatal(err)
	}
	c := contract.New("Shop", "1")
	c.Inbox(in, "orders.created")
	c.Inbox(loose, "mails")
	same(t, string(contract.YAML(c.AsyncAPI())), inboxAsyncAPI)
	d := load(t, string(contract.JSON(c.AsyncAPI())))
	if found, err := d.Lint(contract.LintOptions{}); err != nil || len(found) != 0 || !d.Async {
		t.Error(err, found)
	}
	if !strings.Contains(string(c.Markdown()), "## Messages on orders.created") {
		t.Errorf("%s", c.Markdown())
	}
}

// TestLiveServer proves a printed document against the service it was printed from, over HTTP.
func TestLiveServer(t *testing.T) {
	t.Parallel()
	m, at, mux := middleware(t, engine(t, idempo.Config{}), wrapped{idempo.Operation{Name: "pay", Guard: idempo.GuardLeased}, idemhttp.Rules{MismatchStatus: 409}, []string{"POST /pay"}})
	c := contract.New("x", "1")
	if err := c.Middleware(m, at); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(mux)
	defer srv.Close()
	doc, err := contract.ParseJSON("doc.json", contract.JSON(c.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Endpoints[0].Statement
	send := func(key, body string) *http.Response {
		t.Helper()
		r, _ := http.NewRequest("POST", srv.URL+"/pay", strings.NewReader(body))
		r.Header.Set("X-Account", "acme")
		if key != "" {
			r.Header.Set(s.Key.Name, key)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	ok := func(what string, r *http.Response, status int, marked bool) {
		t.Helper()
		if r.StatusCode != status || (r.Header.Get(s.Replayed.Marker.Header) == s.Replayed.Marker.Value) != marked {
			t.Errorf("%s: %d %v, the document says %d", what, r.StatusCode, r.Header, status)
		}
		class := "2XX"
		if status >= 300 {
			class = strconv.Itoa(status)
		}
		if doc.Get("paths", "/pay", "post", "responses", class) == nil {
			t.Errorf("%s: %s is not declared", what, class)
		}
	}
	ok("missing", send("", "{}"), s.Missing.Status, false)
	ok("first", send("a", "{}"), 201, false)
	ok("repeat", send("a", "{}"), 201, true)
	ok("mismatch", send("a", "[]"), s.Mismatch.Status, false)
	ok("longest key", send(strings.Repeat("k", s.Key.MaxLength), "{}"), 201, false)
	ok("too long", send(strings.Repeat("k", s.Key.MaxLength+1), "{}"), 400, false)
}
