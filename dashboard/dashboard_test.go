package dashboard_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

func TestClosedByDefault(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	nobody := func(*http.Request) (dashboard.Principal, error) { return dashboard.Principal{}, nil }
	for name, c := range map[string]dashboard.Config{
		"no operator":  {Authorize: nobody},
		"no authorize": {Operator: b.ops},
		"prefix":       {Operator: b.ops, Authorize: nobody, Prefix: "ops"},
		"slash":        {Operator: b.ops, Authorize: nobody, Prefix: "/ops/"},
		"escapes":      {Operator: b.ops, Authorize: nobody, Prefix: "/o ps"},
		"form key":     {Operator: b.ops, Authorize: nobody, FormKey: []byte("short")},
	} {
		if _, err := dashboard.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, path := range []string{"/", "/keys", "/doubt", "/audit", "/settings", "/keys.ndjson", "/audit.ndjson", "/events", "/api/v1/keys", "/api/v1/openapi.json", "/keys/" + b.doubt("a", "1")} {
		b.be(dashboard.Principal{})
		says(t, b.get(path), 401)
		b.be(dashboard.Principal{Actor: "guest"})
		says(t, b.get(path), 403)
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`(?:href|src|action)="([^"]+)"`)
	for _, prefix := range []string{"", "/ops/idempo"} {
		t.Run("[operations/UI16] every link, asset, form and redirect stays under the prefix "+prefix, func(t *testing.T) {
			b := newBed(t, func(c *dashboard.Config) { c.Prefix = prefix })
			ref := b.doubt("a", "1")
			b.done("a", "2", idempo.Result{Status: 201})
			for _, path := range []string{"/", "/keys", "/keys?state=in_doubt", "/keys?q=nothing", "/doubt", "/audit", "/settings", "/keys/" + ref} {
				for _, m := range links.FindAllStringSubmatch(b.page(path), -1) {
					if to := m[1]; to != "#main" && !strings.HasPrefix(to, prefix+"/") || prefix == "" && strings.HasPrefix(to, "/ops") {
						t.Errorf("%s leads to %s", path, to)
					} else if strings.Contains(to, "/assets/") || m[0][0] == 'h' && to != "#main" {
						if a := b.get(strings.TrimPrefix(strings.ReplaceAll(to, "&amp;", "&"), prefix)); a.status >= 400 {
							t.Errorf("%s leads to %s: %d", path, to, a.status)
						}
					}
				}
			}
			if to := b.get("/keys?q=2").head.Get("Location"); !strings.HasPrefix(to, prefix+"/keys/k_") {
				t.Error(to)
			}
			if to := b.post("/doubt", "/keys/"+ref+"/resolve", failed("x")).head.Get("Location"); !strings.HasPrefix(to, prefix+"/keys/k_") {
				t.Error(to)
			}
		})
	}
	t.Run("[operations/UI16] two in one process know nothing of each other", func(t *testing.T) {
		one, two := newBed(t, nil), newBed(t, nil)
		ref := one.doubt("a", "1")
		two.doubt("a", "1")
		m := formToken.FindStringSubmatch(two.page("/doubt"))
		form := failed("x")
		form.Set("form", m[1])
		one.page("/doubt")
		says(t, one.send(one.form("/keys/"+ref+"/resolve", form)), 403, "This form is out of date")
		if s := one.state(ref); s != idempo.StateInDoubt {
			t.Error(s)
		}
	})
}

func TestHosts(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *dashboard.Config) { c.Hosts = []string{"127.0.0.1", "ops.example"} })
	for host, status := range map[string]int{"127.0.0.1:7070": 200, "ops.example": 200, "OPS.example:443": 200, "evil.example": 421, "127.0.0.1.evil.example": 421, "[::1]:7070": 421} {
		t.Run("[operations/UI5] a request under the name "+host, func(t *testing.T) {
			r := b.request("GET", "/keys", "")
			r.Host = host
			says(t, b.send(r), status)
			r = b.request("GET", "/assets/app.js", "")
			r.Host = host
			says(t, b.send(r), status)
		})
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	ref := b.doubt("a", "1")
	path := "/keys/" + ref + "/resolve"
	m := formToken.FindStringSubmatch(b.page("/doubt"))
	form := failed("x")
	form.Set("form", m[1])
	untouched := func(t *testing.T) {
		t.Helper()
		if s := b.state(ref); s != idempo.StateInDoubt || len(b.audit()) != 0 {
			t.Error(s, b.audit())
		}
	}
	t.Run("[operations/UI4] refused: another site, no origin at all, no token, a token of another session, a cookie beside a bearer token", func(t *testing.T) {
		for name, change := range map[string]func(r *http.Request){
			"site":    func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			"none":    func(r *http.Request) { r.Header.Del("Origin") },
			"null":    func(r *http.Request) { r.Header.Set("Origin", "null") },
			"fetch":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
			"session": func(r *http.Request) { r.Header.Set("Cookie", "idempo_form="+strings.Repeat("x", 43)) },
		} {
			r := b.form(path, form)
			change(r)
			client := *b.http
			if name == "session" {
				client.Jar = nil
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 403 {
				t.Errorf("%s: %d", name, resp.StatusCode)
			}
		}
		says(t, b.send(b.form(path, failed("x"))), 403, "form_token")
		untouched(t)
	})
	t.Run("[operations/UI4] the token is one person's", func(t *testing.T) {
		b.be(dashboard.Principal{Actor: "eve", Role: operator.RoleAdmin})
		defer b.be(as(operator.RoleAdmin))
		says(t, b.send(b.form(path, form)), 403)
		untouched(t)
	})
	t.Run("[operations/UI4] GET changes nothing, the cookie is HttpOnly, SameSite=Strict, of the prefix", func(t *testing.T) {
		for _, p := range []string{path, "/keys/" + ref + "/purge", "/bulk", "/keys/" + ref + "/reveal"} {
			if a := b.send(b.request("GET", p+"?"+form.Encode(), "")); a.status < 400 {
				t.Error(p, a.status)
			}
		}
		untouched(t)
		fresh := newBed(t, nil)
		c := fresh.get("/keys").head.Get("Set-Cookie")
		for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/ops/idempo/"} {
			if !strings.Contains(c, want) {
				t.Errorf("%s lacks %s", c, want)
			}
		}
	})
	t.Run("[operations/UI4] a bearer call needs no form token, and its cookies do not reach the login", func(t *testing.T) {
		var cookies string
		b := newBed(t, func(c *dashboard.Config) {
			inner := c.Authorize
			c.Authorize = func(r *http.Request) (dashboard.Principal, error) { cookies += r.Header.Get("Cookie"); return inner(r) }
		})
		ref := b.doubt("a", "1")
		r := b.request("POST", "/api/v1/keys/"+ref+"/resolve", `{"attempt":1,"state":"in_doubt","to":"failed","reason":"x"}`)
		r.Header.Set("Authorization", "Bearer t")
		r.Header.Set("Cookie", "session=1")
		says(t, b.send(r), 200)
		if cookies != "" || b.state(ref) != idempo.StateFailed {
			t.Error(cookies, b.state(ref))
		}
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	evil := `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`
	svg := `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(3)"/>`
	ref := b.done(evil, "1", idempo.Result{Status: 200, Body: []byte(svg), Header: [][2]string{{"Content-Type", "image/svg+xml"}, {"X-Evil", evil}}, Resource: idempo.Resource{Type: "t", ID: evil}})
	t.Run("[operations/UI6] every answer carries the policy", func(t *testing.T) {
		for _, path := range []string{"/", "/keys", "/nowhere", "/assets/app.css", "/keys.ndjson", "/api/v1/keys"} {
			head := b.get(path).head
			csp := head.Get("Content-Security-Policy")
			if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") {
				t.Error(path, csp)
			}
			if head.Get("X-Content-Type-Options") != "nosniff" || head.Get("Referrer-Policy") != "no-referrer" ||
				!strings.Contains(path, "assets") && head.Get("Cache-Control") != "no-store" {
				t.Error(path, head)
			}
		}
	})
	t.Run("[operations/UI6] what is stored is text, and a download is an attachment", func(t *testing.T) {
		see := func(a string) {
			t.Helper()
			if strings.Contains(a, "<script>alert") || strings.Contains(a, "<img src=x") || strings.Contains(a, "<svg xmlns=\"http://www.w3.org/2000/svg\" onload") || strings.Contains(a, " style=") {
				t.Errorf("markup came through: %s", a)
			}
		}
		see(b.page("/keys", "&lt;script&gt;alert(1)"))
		see(b.page("/keys/" + ref))
		form := url.Values{"attempt": {"1"}, "state": {"completed"}, "reason": {evil}}
		shown := b.post("/keys/"+ref, "/keys/"+ref+"/reveal", form)
		says(t, shown, 200, "&lt;svg")
		see(shown.body)
		see(b.page("/audit"))
		form.Set("as", "file")
		file := b.post("/keys/"+ref, "/keys/"+ref+"/reveal", form)
		if file.body != svg || file.head.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(file.head.Get("Content-Disposition"), "attachment") {
			t.Error(file)
		}
	})
	t.Run("[operations/UI6] no page has a script or a style of its own, or anything from elsewhere", func(t *testing.T) {
		for _, path := range []string{"/", "/keys", "/keys/" + ref, "/doubt", "/audit", "/settings"} {
			body := regexp.MustCompile(`"[^"]*"`).ReplaceAllStringFunc(b.page(path), func(v string) string { return strings.ReplaceAll(v, " on", "") })
			if n := strings.Count(body, "<script"); n != 1 || strings.Contains(body, "<style") || strings.Contains(body, " on") && regexp.MustCompile(`<[^>]+ on\w+=`).MatchString(body) {
				t.Error(path)
			}
			if regexp.MustCompile(`(?:href|src)="(?:https?:)?//`).MatchString(body) {
				t.Error(path, "leads elsewhere")
			}
		}
	})
}

func TestRoles(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	mine, other := b.doubt("mine", "1"), b.doubt("other", "2")
	done := b.done("mine", "3", idempo.Result{Status: 201, Body: []byte(`{"secret":"s3cr3t-body"}`)})
	t.Run("[operations/UI3] who is limited to tenants sees nothing of others: lists, counts, search, export, API", func(t *testing.T) {
		b.be(as(operator.RoleAdmin, "mine"))
		for _, path := range []string{"/", "/keys", "/doubt", "/audit", "/keys.ndjson", "/api/v1/keys", "/api/v1/counts", "/keys?tenant=other", "/keys?q=2", "/settings"} {
			if a := b.get(path); a.status != 200 || strings.Contains(a.body, other) || strings.Contains(a.body, ">other<") || strings.Contains(a.body, `"other"`) && !strings.Contains(path, "tenant=other") {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
		var counts struct{ Counts map[string]int }
		if err := json.Unmarshal([]byte(b.get("/api/v1/counts").body), &counts); err != nil || counts.Counts["in_doubt"] != 1 {
			t.Error(counts, err)
		}
		unknown := "k_" + strings.Repeat("a", 26)
		for _, form := range []string{"/keys/", "/api/v1/keys/"} {
			hidden, missing := b.get(form+other), b.get(form+unknown)
			if hidden.status != 404 || hidden.body != missing.body {
				t.Errorf("%d %s; %d %s", hidden.status, hidden.body, missing.status, missing.body)
			}
		}
		says(t, b.post("/doubt", "/keys/"+other+"/resolve", failed("x")), 404, "No such key")
		if s := b.state(other); s != idempo.StateInDoubt {
			t.Error(s)
		}
	})
	t.Run("[operations/UI3] a viewer sees no form, and one made by hand is refused as not found, in the audit", func(t *testing.T) {
		b.be(as(operator.RoleViewer))
		for _, path := range []string{"/keys/" + mine, "/keys/" + done, "/doubt", "/keys"} {
			if body := b.page(path); strings.Contains(body, `method="post"`) {
				t.Error(path)
			}
		}
		b.be(as(operator.RoleOperator))
		if body := b.page("/keys/" + done); strings.Contains(body, "/purge") || strings.Contains(body, "/reveal") || !strings.Contains(body, "/retry") {
			t.Error("an operator may retry, and neither purge nor reveal")
		}
		says(t, b.post("/keys/"+done, "/keys/"+done+"/reveal", url.Values{"attempt": {"1"}, "state": {"completed"}, "reason": {"x"}}), 404)
		rows := b.audit()
		if last := rows[len(rows)-1]; last.Action != operator.ActionReveal || last.Code != operator.CodeForbidden || last.Channel != "dashboard" {
			t.Error(last)
		}
	})
	t.Run("[operations/UI7] an answer is hidden until an admin gives a reason; that it was seen is in the audit", func(t *testing.T) {
		b.be(as(operator.RoleAdmin))
		for _, path := range []string{"/keys/" + done, "/keys", "/keys.ndjson", "/api/v1/keys/" + done} {
			if strings.Contains(b.get(path).body, "s3cr3t-body") {
				t.Error(path, "shows the body")
			}
		}
		form := url.Values{"attempt": {"1"}, "state": {"completed"}, "reason": {""}}
		says(t, b.post("/keys/"+done, "/keys/"+done+"/reveal", form), 422, "a reason is required")
		form.Set("reason", "ticket 12")
		says(t, b.post("/keys/"+done, "/keys/"+done+"/reveal", form), 200, "s3cr3t-body")
		rows := b.audit()
		if last := rows[len(rows)-1]; last.Action != operator.ActionReveal || last.Outcome != operator.OutcomeDone || last.Reason != "ticket 12" || last.Actor != "ann@host" {
			t.Error(last)
		}
	})
}

func TestActions(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	t.Run("[operations/UI8] a stale form is a 409 page with the new state and who did it, and changes nothing", func(t *testing.T) {
		ref := b.doubt("a", "1")
		says(t, b.post("/doubt", "/keys/"+ref+"/resolve", failed("first")), 303)
		form := failed("second")
		form.Set("to", "completed")
		a := b.post("/keys/"+ref, "/keys/"+ref+"/resolve", form)
		says(t, a, 409, "has moved", "it is now failed", "changed by ann@host")
		if s := b.state(ref); s != idempo.StateFailed {
			t.Error(s)
		}
	})
	t.Run("[operations/OP21] [operations/OP27] settled with what was made: the next caller gets it, the audit has who and why", func(t *testing.T) {
		ref := b.doubt("a", "2")
		a := b.post("/doubt", "/keys/"+ref+"/resolve", url.Values{"attempt": {"1"}, "state": {"in_doubt"}, "to": {"completed"}, "status": {"201"}, "from": {"doubt"},
			"resource": {"charge:ch_91"}, "result": {`{"id":"ch_91"}`}, "reason": {"found in the bank portal"}, "evidence": {"https://bank.example/91"}})
		says(t, a, 303)
		if a.head.Get("Location") != "/ops/idempo/doubt?done="+ref {
			t.Error(a.head)
		}
		b.page("/doubt?done="+ref, "it happened")
		d := digest("a", "2")
		r, err := b.store.Lookup(t.Context(), idempo.LookupParams{Key: idempo.Key{Tenant: "a", Operation: "pay", ID: string(d[:])}})
		if err != nil || r.State != idempo.StateCompleted || r.Result.Status != 201 || string(r.Result.Body) != `{"id":"ch_91"}` || r.Result.Resource.ID != "ch_91" {
			t.Error(r, err)
		}
		e := b.audit()
		if last := e[len(e)-1]; last.Actor != "ann@host" || last.Reason != "found in the bank portal" || last.Evidence != "https://bank.example/91" || last.Channel != "dashboard" {
			t.Error(last)
		}
	})
	t.Run("[operations/OP24] a success runs again only where its reference was typed", func(t *testing.T) {
		ref := b.done("a", "3", idempo.Result{Status: 201})
		form := url.Values{"attempt": {"1"}, "state": {"completed"}, "force": {"1"}, "reason": {"x"}, "confirm": {"yes"}}
		says(t, b.post("/keys/"+ref, "/keys/"+ref+"/retry", form), 422, "severe")
		form.Set("confirm", ref)
		says(t, b.post("/keys/"+ref, "/keys/"+ref+"/retry", form), 303)
		if s := b.state(ref); s != idempo.StateFailed {
			t.Error(s)
		}
	})
	t.Run("[operations/OP23] a running key is released", func(t *testing.T) {
		p := b.claim("a", "pay", "4")
		says(t, b.post("/keys/"+p.Key.Ref(), "/keys/"+p.Key.Ref()+"/release", url.Values{"attempt": {"1"}, "state": {"pending"}, "nothing_happened": {"1"}, "reason": {"x"}}), 303)
		if s := b.state(p.Key.Ref()); s != idempo.StateFailed {
			t.Error(s)
		}
	})
	t.Run("[operations/UI9] every form says the equal command, and lists theirs with the same filter", func(t *testing.T) {
		ref, done := b.doubt("a", "5"), b.done("a", "6", idempo.Result{Status: 201, Body: []byte("x")})
		b.page("/doubt", "idempo keys resolve "+ref+" --failed")
		b.page("/keys/"+done, "idempo keys retry "+done+" --force --confirm "+done, "idempo keys purge "+done, "idempo keys show "+done+" --body", "--with-tombstones")
		b.page("/keys?state=in_doubt&tenant=a&older_than=0s&stuck=", "idempo keys list --state in_doubt --tenant a --older-than 0s")
		b.page("/audit?actor=ann%40host&action=resolve", "idempo keys audit --by ann@host --action resolve --newest")
	})
	t.Run("[operations/UI14] garbage is a page that says so", func(t *testing.T) {
		ref := b.doubt("a", "7")
		form := failed("x")
		form.Set("attempt", "one")
		says(t, b.post("/doubt", "/keys/"+ref+"/resolve", form), 400, "That cannot be read")
		form = failed("x")
		form.Set("to", "completed")
		form.Set("status", "99")
		says(t, b.post("/doubt", "/keys/"+ref+"/resolve", form), 422, "100 to 599")
		says(t, b.post("/doubt", "/keys/"+ref+"/explode", failed("x")), 404)
		says(t, b.post("/doubt", "/keys/k_short/resolve", failed("x")), 404)
		says(t, b.post("/doubt", "/keys/"+ref+"/resolve", failed(strings.Repeat("x", 3<<20))), 413)
		if s := b.state(ref); s != idempo.StateInDoubt {
			t.Error(s)
		}
	})
}

func TestBulk(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP26] a whole filter: what it would do, then done once it is confirmed", func(t *testing.T) {
		b := newBed(t, nil)
		var refs []string
		for i := range 12 {
			refs = append(refs, b.doubt("a", fmt.Sprint(i)))
		}
		other := b.doubt("b", "x")
		form := url.Values{"do": {"resolve-failed"}, "state": {"in_doubt"}, "tenant": {"a"}, "reason": {"the carrier was down"}}
		says(t, b.post("/keys", "/bulk", form), 200, "<b>12</b> keys", "idempo keys resolve --failed --state in_doubt --tenant a --reason")
		for _, ref := range append(refs, other) {
			if s := b.state(ref); s != idempo.StateInDoubt {
				t.Fatal("a preview changed", ref, s)
			}
		}
		form.Set("go", "1")
		says(t, b.post("/keys", "/bulk", form), 200, "<dt>done</dt><dd>12</dd>")
		for _, ref := range refs {
			if s := b.state(ref); s != idempo.StateFailed {
				t.Error(ref, s)
			}
		}
		if s := b.state(other); s != idempo.StateInDoubt || len(b.audit()) != 12 {
			t.Error(s, len(b.audit()))
		}
		form.Del("reason")
		says(t, b.post("/keys", "/bulk", form), 422, "a reason is required")
	})
}

func TestLists(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	want := map[string]bool{}
	for i := range 120 {
		want[b.done("t"+fmt.Sprint(i%3), fmt.Sprint(i), idempo.Result{Status: 201})] = true
	}
	old := b.doubt("t0", "old")
	next := regexp.MustCompile(`href="/ops/idempo(/keys\?[^"]+)" rel="next"`)
	ref := regexp.MustCompile(`>(k_[a-z2-7]{26})</a>`)
	t.Run("[operations/UI10] pages lead to the last row, each once", func(t *testing.T) {
		seen := map[string]int{}
		for path := "/keys?state=completed"; path != ""; {
			body := b.page(path)
			for _, m := range ref.FindAllStringSubmatch(body, -1) {
				seen[m[1]]++
			}
			path = ""
			if m := next.FindStringSubmatch(body); m != nil {
				path = strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%d of %d", len(seen), len(want))
		}
		for k, n := range seen {
			if !want[k] || n != 1 {
				t.Error(k, n)
			}
		}
	})
	t.Run("[operations/UI9] an export has all of the filter, a line each, as the command line writes it", func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(b.get("/keys.ndjson?state=completed&tenant=t1").body), "\n")
		if len(lines) != 40 {
			t.Fatal(len(lines))
		}
		var row operator.Row
		if err := json.Unmarshal([]byte(lines[0]), &row); err != nil || row.Tenant != "t1" || !want[row.KeyRef] || row.Schema != 1 {
			t.Error(row, err)
		}
		says(t, b.post("/doubt", "/keys/"+old+"/resolve", failed("x")), 303)
		if got := b.get("/audit.ndjson?key=" + old); got.head.Get("Content-Type") != "application/x-ndjson" || strings.Count(got.body, "\n") != 1 || !strings.Contains(got.body, `"reason":"x"`) {
			t.Error(got)
		}
	})
	t.Run("one search box: a reference, a key as it was sent, one that many have, one that nobody has", func(t *testing.T) {
		to := func(path string) string { return b.get(path).head.Get("Location") }
		if got := to("/keys?q=old"); got != "/ops/idempo/keys/"+old {
			t.Error(got)
		}
		if got := to("/keys?q=%20" + strings.ToUpper(old)); got != "/ops/idempo/keys/"+old {
			t.Error(got)
		}
		b.done("t1", "old", idempo.Result{Status: 200})
		b.page("/keys?q=old", "2 keys stand under that name", old)
		if got := to("/keys?q=old&tenant=t0&operation=pay"); got != "/ops/idempo/keys/"+old {
			t.Error(got)
		}
		b.page("/keys?q=%3Cnobody%3E", "Nothing stands under <b>&lt;nobody&gt;</b>")
	})
	t.Run("[operations/UI14] a filter that means nothing is a page that says why", func(t *testing.T) {
		says(t, b.get("/keys?state=exploded"), 422, "unknown state")
		says(t, b.get("/keys?older_than=5"), 422, "whole numbers with a unit")
		says(t, b.get("/keys?after=garbage"), 422, "not a cursor")
		says(t, b.get("/keys?resource=x"), 422, "type:id")
		says(t, b.get("/audit?action=explode"), 422, "unknown action")
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	t.Run("[operations/UI14] empty, not found, another method", func(t *testing.T) {
		b := newBed(t, nil)
		b.page("/", "Nothing is in doubt", "No keys yet")
		b.page("/keys", "No keys yet")
		b.page("/doubt", "Nothing is in doubt")
		b.page("/audit", "Nobody has done anything yet")
		says(t, b.get("/nowhere"), 404, "No such page")
		says(t, b.get("/keys/k_"+strings.Repeat("a", 26)), 404, "No such key")
		says(t, b.get("/keys/what"), 404, "No such key")
	})
	t.Run("[operations/UI14] the store is down: 503, what and what next, no cause on the page", func(t *testing.T) {
		broken, err := operator.New(down{memstore.New(memstore.Options{})}, operator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := newBed(t, func(c *dashboard.Config) { c.Operator = broken })
		for _, path := range []string{"/", "/keys", "/doubt", "/audit", "/keys.ndjson"} {
			a := b.get(path)
			says(t, a, 503, "The store does not answer", "idempo doctor")
			if strings.Contains(a.body, "hunter2") {
				t.Error(path, "shows the cause")
			}
		}
		a := b.get("/api/v1/keys")
		says(t, a, 503, `"code":"store_unavailable"`)
		if a.head.Get("Content-Type") != "application/problem+json" {
			t.Error(a.head)
		}
	})
}

func TestEstimates(t *testing.T) {
	t.Parallel()
	t.Run("[operations/UI10] counts above 10,000 say that they are estimates", func(t *testing.T) {
		ops, err := operator.New(many{memstore.New(memstore.Options{})}, operator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := newBed(t, func(c *dashboard.Config) { c.Operator = ops })
		b.page("/", "about 1,230,000", "about 1,230,003", ">3<")
		says(t, b.get("/api/v1/counts"), 200, `"completed":1230000`, `"estimated":["completed"]`)
	})
}

func TestStream(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	open := func(t *testing.T, b *bed, last string) (*bufio.Scanner, func()) {
		t.Helper()
		r := b.request("GET", "/events", "")
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatal(resp, err)
		}
		return bufio.NewScanner(resp.Body), func() { _ = resp.Body.Close() }
	}
	// next reads events up to one of kind, and returns its id and data; until insists on it.
	next := func(s *bufio.Scanner, kind string) (id, data string, ok bool) {
		event := ""
		for s.Scan() {
			name, value, _ := strings.Cut(s.Text(), ": ")
			switch name {
			case "id":
				id = value
			case "event":
				event = value
			case "data":
				if event == kind {
					return id, value, true
				}
			}
		}
		return "", "", false
	}
	until := func(t *testing.T, s *bufio.Scanner, kind string) (id, data string) {
		t.Helper()
		id, data, ok := next(s, kind)
		if !ok {
			t.Fatal("the stream ended", s.Err())
		}
		return id, data
	}
	t.Run("[operations/UI11] what an operator does arrives; who comes back gets what it missed, once", func(t *testing.T) {
		first, second, third := b.doubt("a", "1"), b.doubt("a", "2"), b.doubt("a", "3")
		watching, end := open(t, b, "") // somebody watches throughout
		defer end()
		until(t, watching, "counts")
		says(t, b.post("/doubt", "/keys/"+first+"/resolve", failed("x")), 303)
		id, data := until(t, watching, "audit")
		if !strings.Contains(data, first) {
			t.Error(data)
		}
		says(t, b.post("/doubt", "/keys/"+second+"/resolve", failed("x")), 303)
		says(t, b.post("/doubt", "/keys/"+third+"/resolve", failed("x")), 303)
		for _, ref := range []string{second, third} {
			if _, data := until(t, watching, "audit"); !strings.Contains(data, ref) {
				t.Error(data)
			}
		}
		back, stop := open(t, b, id)
		defer stop()
		for _, ref := range []string{second, third} {
			if _, data := until(t, back, "audit"); !strings.Contains(data, ref) {
				t.Errorf("%s, want %s", data, ref)
			}
		}
	})
	t.Run("[operations/UI11] more at once than one look finds: all of it arrives, in order", func(t *testing.T) {
		b := newBed(t, nil)
		for i := range 450 {
			b.doubt("a", fmt.Sprint(i))
		}
		first, end := open(t, b, "")
		until(t, first, "counts")
		one := b.doubt("a", "one")
		says(t, b.post("/keys/"+one, "/keys/"+one+"/resolve", failed("x")), 303)
		id, _ := until(t, first, "audit")
		end()
		done, err := b.ops.Bulk(t.Context(), operator.BulkParams{By: as(operator.RoleAdmin), Find: operator.FindParams{State: idempo.StateInDoubt}, Reason: "y", Rate: 1_000_000,
			Do: operator.Change{Action: operator.ActionResolve, To: idempo.StateFailed}})
		if err != nil || done.OK != 450 {
			t.Fatal(done, err)
		}
		seen := map[string]bool{}
		for len(seen) < 450 {
			back, stop := open(t, b, id)
			for range 40 { // then cut off, as a slow one is
				at, data, ok := next(back, "audit")
				if !ok {
					break
				}
				id = at
				var e operator.EntryRow
				if err := json.Unmarshal([]byte(data), &e); err != nil || seen[e.KeyRef] {
					t.Fatal(err, "twice:", data)
				}
				if seen[e.KeyRef] = true; len(seen) == 450 {
					break
				}
			}
			stop()
		}
	})
	t.Run("[operations/UI11] an id that nobody knows is told to read anew", func(t *testing.T) {
		s, end := open(t, b, "elsewhere-7")
		defer end()
		until(t, s, "reset")
	})
	t.Run("[operations/UI3] nothing of other tenants", func(t *testing.T) {
		b.be(as(operator.RoleAdmin, "mine"))
		s, end := open(t, b, "")
		defer end()
		until(t, s, "counts")
		b.be(as(operator.RoleAdmin))
		other, mine := b.doubt("other", "4"), b.doubt("mine", "5")
		says(t, b.post("/doubt", "/keys/"+other+"/resolve", failed("x")), 303)
		says(t, b.post("/doubt", "/keys/"+mine+"/resolve", failed("x")), 303)
		if _, data := until(t, s, "audit"); !strings.Contains(data, mine) {
			t.Error(data)
		}
	})
}

func TestStreamIsBounded(t *testing.T) {
	t.Run("[operations/UI11] at most 200 streams, then 429", func(t *testing.T) {
		b := newBed(t, nil)
		var last int
		for range 201 {
			resp, err := http.DefaultClient.Do(b.request("GET", "/events", ""))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			last = resp.StatusCode
		}
		if last != http.StatusTooManyRequests {
			t.Error(last)
		}
	})
}
