package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hookShell is a shell whose configuration has one source, and a target that says what it is told to.
type hookShell struct {
	*shell
	status atomic.Int32
	got    chan *http.Request
	port   string
}

func newHookShell(t *testing.T, more string) *hookShell {
	t.Helper()
	h := &hookShell{shell: newShell(t), got: make(chan *http.Request, 1000)}
	h.status.Store(200)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.got <- r
		w.WriteHeader(int(h.status.Load()))
	}))
	t.Cleanup(target.Close)
	h.port = target.URL[strings.LastIndex(target.URL, ":")+1:]
	h.file("hook.secret", "made-up")
	h.file("idempo.yaml", fmt.Sprintf(`version: 1
store: {sqlite: idempo.db}
listen: {gateway: "127.0.0.1:0"}
security: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}], encryption_keys: [{id: e1, value: 0123456789abcdef0123456789abcdef}]}
webhooks:
  sources:
    gh: {provider: github, secrets: [{id: a, value: {file: hook.secret}}], retry: {attempts: 2, first: 1ms, max: 1ms}%s}
`, strings.ReplaceAll(more, "PORT", h.port)))
	return h
}

const hookForward = `, forward: {url: "http://127.0.0.1:PORT/in", target_dedups: true, allow: ["127.0.0.1/32"], ports: [PORT], breaker: 1000}`

// deliver sends a push to the running server.
func (h *hookShell) deliver(v *serving, id, body string) {
	h.t.Helper()
	h.file("body.json", body)
	if r := h.run("webhooks", "send", "--source", "gh", "--body", "body.json", "--type", "push", "--id", id, "--to", v.front()+"/hooks/gh"); r.code != 0 {
		h.t.Fatal(r)
	}
}

// rows are the events that a list shows.
func (h *hookShell) rows(args ...string) (rows []hookRow) {
	h.t.Helper()
	r := h.run(append([]string{"webhooks", "list", "--json"}, args...)...)
	if r.code != 0 {
		h.t.Fatal(r)
	}
	for line := range strings.Lines(r.out) {
		var row hookRow
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			h.t.Fatal(err, line)
		}
		rows = append(rows, row)
	}
	return rows
}

// await lists until ok, as long as the test may take.
func (h *hookShell) await(what string, ok func([]hookRow) bool) []hookRow {
	h.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		rows := h.rows()
		if ok(rows) {
			return rows
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: not in a minute: %+v", what, rows)
		}
	}
}

func statuses(rows []hookRow) (list []string) {
	for _, r := range rows {
		list = append(list, strings.TrimSpace(r.DeliveryID+" "+r.Status+" "+r.Reason))
	}
	return list
}

func all(n int, status string) func([]hookRow) bool {
	return func(rows []hookRow) bool {
		for _, r := range rows {
			if r.Status != status {
				return false
			}
		}
		return len(rows) == n
	}
}

func TestWebhookEvents(t *testing.T) {
	t.Parallel()
	h := newHookShell(t, hookForward)
	v := h.serve()
	defer func() { v.signals <- os.Interrupt; <-v.code }()
	h.status.Store(422)
	h.deliver(v, "d1", `{"a":1,"access_token":"canary-token"}`)
	h.deliver(v, "d2", `{"b":1}`)
	dead := h.await("dead", all(2, "dead"))
	h.deliver(v, "d1", `{"other":1}`)
	one := dead[1].Receipt
	t.Run("[webhooks/RP6] filters intersect, the newest is first, and a row has its members", func(t *testing.T) {
		rows := h.rows()
		if got := statuses(rows); fmt.Sprint(got) != "[d1 parked conflict d2 dead attempts d1 dead attempts]" {
			t.Fatal(got)
		}
		r := rows[2]
		if r.Receipt != one || r.Item != 0 || r.Source != "gh" || r.Provider != "github" || r.Type != "push" || r.Attempts != 2 || r.NextAttempt != "" || r.ReceivedAt == "" ||
			r.Seen != 0 || r.FirstError != "forward: the target answered 422" || r.LastError != r.FirstError {
			t.Errorf("%+v", r)
		}
		for args, want := range map[string]string{
			"--status dead": "[d2 dead attempts d1 dead attempts]", "--status parked": "[d1 parked conflict]", "--key d1": "[d1 parked conflict d1 dead attempts]",
			"--key d1 --status dead": "[d1 dead attempts]", "--reason-code conflict": "[d1 parked conflict]", "--type push --limit 1": "[d1 parked conflict]",
			"--type other": "[]", "--source nobody": "[]", "--since 1h --status handled": "[]", "--until 1h": "[]", "--since 1h --limit 2": "[d1 parked conflict d2 dead attempts]"} {
			if got := fmt.Sprint(statuses(h.rows(strings.Fields(args)...))); got != want {
				t.Errorf("%s: %s, want %s", args, got, want)
			}
		}
		first := h.run("webhooks", "list", "--json", "--limit", "2")
		after := strings.TrimSpace(strings.TrimPrefix(first.err, "more: --after "))
		if got := statuses(h.rows("--after", after)); fmt.Sprint(got) != "[d1 dead attempts]" {
			t.Errorf("after %q: %v", after, got)
		}
		if r := h.run("webhooks", "list"); r.code != 0 || !strings.Contains(r.out, one) || strings.Contains(r.out, "\x1b") {
			t.Error(r)
		}
		for _, bad := range [][]string{{"--status", "ded"}, {"--since", "soon"}, {"--blocked", "--status", "dead"}} {
			if r := h.run(append([]string{"webhooks", "list"}, bad...)...); r.code != 125 || r.out != "" {
				t.Errorf("%v: %v", bad, r)
			}
		}
	})
	t.Run("[webhooks/RP7] show has all of it; bodies exactly, and masked unless --raw", func(t *testing.T) {
		r := h.run("webhooks", "show", one)
		for _, want := range []string{"d1, not signed", "gh, github", "dead, attempts", "X-Hub-Signature-256: [redacted]", "verified     hmac sha256, secret a", "POST /hooks/gh", "attempts     2",
			"the target answered 422", "idempo webhooks replay " + one, "idempo webhooks skip " + one} {
			if !strings.Contains(r.out, want) {
				t.Errorf("without %q:\n%s", want, r.out)
			}
		}
		if strings.Contains(r.out, "canary") || strings.Contains(r.out, "made-up") {
			t.Error(r.out)
		}
		if r := h.run("webhooks", "show", one, "--body"); r.out != `{"a":1,"access_token":"[masked]"}` {
			t.Error(r)
		}
		if r := h.run("webhooks", "show", one, "--raw"); r.out != `{"a":1,"access_token":"canary-token"}` {
			t.Error(r)
		}
		var d hookDetail
		if r := h.run("webhooks", "show", one, "--json"); json.Unmarshal([]byte(r.out), &d) != nil || d.Verdict.Secret != "a" || len(d.Failures) != 2 || d.Sealed != "e1" || d.BodySize != 37 {
			t.Error(r)
		}
		if r := h.run("webhooks", "show", "01KC5YEE800123456789ABCDEF"); r.code != 1 || !strings.Contains(r.err, "no such event") {
			t.Error(r)
		}
		if r := h.run("webhooks", "show", "x"); r.code != 125 {
			t.Error(r)
		}
	})
	t.Run("a dry run writes nothing and decides as the real one", func(t *testing.T) {
		before := fmt.Sprint(h.rows())
		plan := h.run("webhooks", "replay", "--status", "dead", "--source", "gh", "--reason", "fixed", "--dry-run", "--json")
		if plan.code != 0 || !strings.Contains(plan.out, `"ok":2`) || !strings.Contains(plan.out, `"dry_run":true`) {
			t.Error(plan)
		}
		if r := h.run("webhooks", "replay", one, "--reason", "fixed", "--dry-run"); r.code != 0 || !strings.Contains(r.err+r.out, one) {
			t.Error(r)
		}
		if after := fmt.Sprint(h.rows()); after != before {
			t.Errorf("%s\n%s", before, after)
		}
		if audit := h.run("keys", "audit", "--json").out; audit != "" {
			t.Error(audit)
		}
	})
	h.status.Store(200)
	drain := func() (list []*http.Request) {
		for len(h.got) > 0 {
			list = append(list, <-h.got)
		}
		return list
	}
	firstKey := ""
	for _, r := range drain() {
		if r.Header.Get("Idempo-Receipt") == one {
			firstKey = r.Header.Get("Idempotency-Key")
		}
	}
	t.Run("[webhooks/RP1] a replay is a new attempt under the same receipt, audited", func(t *testing.T) {
		if r := h.run("webhooks", "replay", one, "--yes"); r.code != 125 || !strings.Contains(r.err, "reason") {
			t.Error(r)
		}
		if r := h.run("webhooks", "replay", one, "--reason", "parser fixed", "--yes"); r.code != 0 {
			t.Fatal(r)
		}
		h.await("handled", func(rows []hookRow) bool { return rows[2].Status == "handled" && rows[2].Receipt == one })
		if got := drain(); len(got) != 1 || got[0].Header.Get("Idempotency-Key") != firstKey || got[0].Header.Get("Idempo-Receipt") != one {
			t.Errorf("%d sent", len(got))
		}
		if r := h.run("webhooks", "show", one); !strings.Contains(r.out, "parser fixed") || !strings.Contains(r.out, "secret a") {
			t.Error(r.out)
		}
		if audit := h.run("keys", "audit", "--json").out; !strings.Contains(audit, `"reason":"parser fixed"`) || !strings.Contains(audit, `"action":"retry"`) {
			t.Error(audit)
		}
	})
	t.Run("[webhooks/RP2] what was handled runs again only if told to, as the next generation with another key", func(t *testing.T) {
		r := h.run("webhooks", "replay", one, "--reason", "once more", "--yes")
		if r.code != 1 || !strings.Contains(r.err, "already handled; add --again to run it a second time") {
			t.Error(r)
		}
		if r := h.run("webhooks", "replay", one, "--reason", "once more", "--yes", "--again"); r.code != 125 || !strings.Contains(r.err, "--confirm "+one) {
			t.Error(r)
		}
		if r := h.run("webhooks", "replay", one, "--reason", "once more", "--again", "--confirm", one); r.code != 0 {
			t.Fatal(r)
		}
		var got *http.Request
		select {
		case got = <-h.got:
		case <-t.Context().Done():
			t.Fatal("never sent")
		}
		if key := got.Header.Get("Idempotency-Key"); key == firstKey || key == "" || got.Header.Get("Idempo-Original-Id") != firstKey {
			t.Errorf("key %q, original %q, first %q", key, got.Header.Get("Idempo-Original-Id"), firstKey)
		}
		h.await("handled again", func(rows []hookRow) bool { return rows[2].Status == "handled" })
		if len(drain()) != 0 {
			t.Error("more than once")
		}
	})
	t.Run("a conflict needs --accept, and runs under its own receipt", func(t *testing.T) {
		conflict := h.rows("--status", "parked")[0].Receipt
		if r := h.run("webhooks", "replay", conflict, "--reason", "it is right", "--yes"); r.code != 1 || !strings.Contains(r.err, "--accept") {
			t.Error(r)
		}
		if r := h.run("webhooks", "replay", conflict, "--reason", "it is right", "--yes", "--accept"); r.code != 0 {
			t.Fatal(r)
		}
		h.await("accepted", func(rows []hookRow) bool { return rows[0].Status == "handled" })
		if got := drain(); len(got) != 1 || got[0].Header.Get("Idempo-Receipt") != conflict || got[0].Header.Get("Idempotency-Key") == firstKey {
			t.Errorf("%d sent", len(got))
		}
	})
	t.Run("[webhooks/RP3] a bulk runs the oldest first, leaves out what was handled, and repeats nothing", func(t *testing.T) {
		h.status.Store(422)
		for i := range 5 {
			h.deliver(v, fmt.Sprint("bulk", i), fmt.Sprintf(`{"n":%d}`, i))
		}
		h.await("dead", func(rows []hookRow) bool { return len(rows) == 8 && all(5, "dead")(rows[:5]) })
		h.status.Store(200)
		drain()
		args := []string{"webhooks", "replay", "--source", "gh", "--since", "1h", "--until", "0s", "--type", "push", "--rate", "1000/s", "--reason", "fixed", "--yes", "--json"}
		first := h.run(append(args, "--limit", "4")...)
		if first.code != 0 || !strings.Contains(first.out, `"ok":4`) || !strings.Contains(first.out, `"next":`) {
			t.Fatal(first)
		}
		h.await("four", func(rows []hookRow) bool { return len(h.got) >= 4 })
		second := h.run(args...)
		if !strings.Contains(second.out, `"failed":0`) {
			t.Fatal(second)
		}
		h.await("all", all(8, "handled"))
		if got := drain(); len(got) != 6 { // d2 was dead, too
			t.Errorf("%d sent", len(got))
		}
		if again := h.run(args...); again.code != 0 || !strings.Contains(again.out, `"ok":0`) {
			t.Error(again)
		}
	})
	t.Run("[webhooks/RP8] skip completes without effect, and says who and why", func(t *testing.T) {
		h.status.Store(422)
		h.deliver(v, "s1", `{"s":1}`)
		h.deliver(v, "s1", `{"s":2}`) // parked
		rows := h.await("dead", func(rows []hookRow) bool { return rows[1].Status == "dead" })
		drain()
		for _, r := range rows[:2] {
			if r := h.run("webhooks", "skip", r.Receipt, "--reason", "by hand", "--yes"); r.code != 0 {
				t.Fatal(r)
			}
		}
		h.await("skipped", func(rows []hookRow) bool {
			return fmt.Sprint(statuses(rows[:2])) == "[s1 skipped asked s1 skipped asked]"
		})
		if r := h.run("webhooks", "show", rows[1].Receipt); !strings.Contains(r.out, "by hand") {
			t.Error(r.out)
		}
		h.deliver(v, "s1", `{"s":1}`)
		if r := h.run("webhooks", "skip", rows[0].Receipt, "--reason", "twice", "--yes"); r.code != 1 || len(drain()) != 0 {
			t.Error(r)
		}
	})
	t.Run("sources say what stands where", func(t *testing.T) {
		var row sourceRow
		if r := h.run("webhooks", "sources", "--json"); json.Unmarshal([]byte(r.out), &row) != nil || row.Source != "gh" || row.Provider != "github" || row.LastEvent == "" ||
			len(row.Secrets) != 1 || row.Secrets[0].LastUsed == "" || !row.Configured {
			t.Error(r)
		}
		if r := h.run("webhooks", "sources"); !strings.Contains(r.out, "gh") {
			t.Error(r)
		}
	})
}

func TestWebhookHold(t *testing.T) {
	t.Parallel()
	t.Run("forward: none keeps what comes until a configuration says where to", func(t *testing.T) {
		h := newHookShell(t, ", forward: none")
		v := h.serve()
		h.deliver(v, "d1", `{"a":1}`)
		if got := statuses(h.rows()); fmt.Sprint(got) != "[d1 stored]" {
			t.Error(got)
		}
		v.signals <- os.Interrupt
		<-v.code
		text, err := os.ReadFile(h.dir + "/idempo.yaml")
		if err != nil {
			t.Fatal(err)
		}
		h.file("idempo.yaml", strings.Replace(string(text), ", forward: none", strings.ReplaceAll(hookForward, "PORT", h.port), 1))
		v = h.serve()
		<-h.got
		h.await("handled", all(1, "handled"))
		v.signals <- os.Interrupt
		<-v.code
	})
}
