package pagecheck

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/operator"
)

// TestStory is somebody who has never seen the dashboard: a customer's payment order-8123 is stuck.
func TestStory(t *testing.T) {
	t.Run("[operations/UI15] finds the stuck payment by its key, sees why, settles it, and finds who did it in the audit", func(t *testing.T) {
		s := newStage(t, "/ops/idempo")
		ref := s.day()
		b := openTab(t, view{})
		b.open(s.url("/"))
		b.shows("3 keys need a decision", "create-payment")
		b.follow(`nav a[href$="/keys"]`)
		b.fill("#q", "order-8123")
		b.follow(".search button")
		if !strings.HasSuffix(b.address(), "/keys/"+ref) {
			t.Fatal(b.address())
		}
		b.shows("in doubt", "It may have happened, and nobody has proved either way", "the upstream closed the connection after the request was sent", "acme", "pay-1/3177")
		b.click("input[name=to][value=completed]")
		b.fill("input[name=status]", "201")
		b.fill("input[name=resource]", "charge:ch_91")
		b.fill("textarea[name=reason]", "found in the bank portal, don't repeat")
		b.click(".resolve .same summary")
		if line := b.text("[data-cli-out]"); line != "idempo keys resolve "+ref+` --completed --status 201 --resource charge:ch_91 --reason 'found in the bank portal, don'\''t repeat'` {
			t.Error(line)
		}
		b.keep("dashboard-settle")
		b.follow(".resolve button.primary")
		b.shows("Settled: it happened", "completed", "charge:ch_91", "found in the bank portal")
		b.follow(`nav a[href$="/audit"]`)
		b.fill("input[name=key]", ref)
		b.follow(".filters button")
		b.shows("ann", "admin, dashboard", "Resolve", "in doubt", "completed", "found in the bank portal, don't repeat")

		got, err := s.engine.Begin(t.Context(), idempo.Request{Key: idempo.Key{Tenant: "acme", Operation: "create-payment", ID: "order-8123"}, Input: [][]byte{[]byte("order-8123")}})
		if err != nil || got.Verdict != idempo.VerdictReplay || got.Record.Result.Status != 201 {
			t.Error("the customer's retry:", got.Verdict, err)
		}
	})
}

func TestFlows(t *testing.T) {
	t.Run("[operations/UI12] [operations/UI15] without JavaScript: search, filter, page, settle one after the other, in bulk, reveal", func(t *testing.T) {
		s := newStage(t, "/ops/idempo")
		ref := s.day()
		b := openTab(t, view{noJS: true})
		b.open(s.url("/doubt"))
		b.shows("1 of 3", "create-payment for acme")
		b.click("input[name=to][value=failed]")
		b.fill("textarea[name=reason]", "not at the bank")
		b.follow(".resolve button.primary")
		b.shows("nothing happened", "Here is the next one", "1 of 2", "refund for globex")
		b.click("input[name=to][value=probe]")
		b.fill("textarea[name=reason]", "asked the probe")
		b.follow(".resolve button.primary")
		b.shows("1 of 1", "ship-order for initech")
		b.open(s.url("/keys?state=completed"))
		b.follow("a[rel=next]")
		b.shows("completed")
		b.follow("a[rel=next]")
		b.shows("That was the last page")
		b.click("details.filters summary")
		b.do(chromedp.SendKeys("details.filters select[name=outcome]", "f"))
		b.follow("details.filters button")
		b.shows("failing")
		b.open(s.url("/keys?state=in_doubt"))
		b.do(chromedp.Click(".tools details:last-of-type summary"))
		b.do(chromedp.SendKeys("select[name=do]", "s"))
		b.fill("textarea[name=reason]", "the carrier was down")
		b.follow(".tools form button")
		b.shows("Before it is done", "1 key:", "the carrier was down")
		b.follow("button.primary")
		b.shows("Done", "1")
		b.open(s.url("/doubt"))
		b.shows("Nothing is in doubt")
		b.open(s.url("/keys?q=order-8001"))
		b.click(`details.action:has(form[action$="/reveal"]) > summary`)
		b.fill(`form[action$="/reveal"] textarea`, "ticket 4711")
		b.follow(`form[action$="/reveal"] .go button:first-child`)
		b.shows("Stored answer", `"currency": "EUR"`)
		if st := state(s, ref); st != idempo.StateFailed {
			t.Error(st)
		}
	})
	t.Run("[operations/UI11] [operations/UI15] live: what happens elsewhere shows without a reload; paused it does not", func(t *testing.T) {
		s := newStage(t, "")
		b := openTab(t, view{})
		b.open(s.url("/"))
		b.shows("Nothing is in doubt")
		s.doubt("acme", "create-payment", "late-1", "cut")
		b.do(chromedp.WaitVisible(".attention"))
		b.shows("1 key needs a decision")
		if n := b.text("#badge"); !strings.HasPrefix(n, "1") {
			t.Error(n)
		}
		b.click("#pause")
		b.do(chromedp.WaitVisible(".livebox.paused"))
		s.doubt("acme", "create-payment", "late-2", "cut")
		b.shows("1 key needs a decision")
		b.click("#pause")
		get(b, chromedp.Poll[bool](`document.body.innerText.includes("2 keys need a decision")`))
	})
	t.Run("[operations/UI8] [operations/UI15] a key that has moved under the form", func(t *testing.T) {
		s := newStage(t, "/ops/idempo")
		ref := s.doubt("acme", "create-payment", "o-1", "cut")
		b := openTab(t, view{})
		b.open(s.url("/keys/" + ref))
		_, err := s.ops.Resolve(t.Context(), operator.ResolveParams{To: idempo.StateFailed, Why: operator.Why{By: operator.Principal{Actor: "bob", Role: operator.RoleOperator},
			Target: operator.Target{Ref: ref}, On: operator.Seen{Attempt: 1, State: idempo.StateInDoubt}, Reason: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		b.click("input[name=to][value=completed]")
		b.fill("textarea[name=reason]", "found it")
		b.follow(".resolve button.primary")
		b.expect("409")
		b.shows("The key has moved", "it is now failed", "changed by bob")
	})
	t.Run("[operations/UI3] [operations/UI14] [operations/UI15] a viewer of one tenant, and nobody", func(t *testing.T) {
		s := newStage(t, "/ops/idempo")
		ref := s.day()
		s.be(dashboard.Principal{Actor: "vic", Role: operator.RoleViewer, Tenants: []string{"globex"}})
		b := openTab(t, view{})
		b.open(s.url("/doubt"))
		b.shows("1, the oldest first", "refund", "Settling takes the role operator")
		b.open(s.url("/keys/" + ref))
		b.expect("404")
		b.shows("No such key")
		s.be(dashboard.Principal{})
		b.open(s.url("/keys"))
		b.expect("401")
		b.shows("Log in first")
	})
}

func state(s *stage, ref string) idempo.State {
	shown, err := s.ops.Show(s.t.Context(), operator.ShowParams{By: ann(), Target: operator.Target{Ref: ref}})
	if err != nil {
		return ""
	}
	return shown.Record.State
}
