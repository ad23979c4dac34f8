package pagecheck

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// faint lists visible text whose contrast to what it stands on is under that of WCAG 2.2 AA: 4.5, or 3 for large text.
const faint = `(() => {
  const parts = (c) => c.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility() || e.closest(".sr, .skip, option")) continue;
    const style = getComputedStyle(e), a = light(parts(style.color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05), size = parseFloat(style.fontSize);
    if (ratio < (size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5)) found.push(ratio.toFixed(2) + " " + e.tagName + "." + e.className + ": " + e.textContent.trim().slice(0, 40));
  }
  return found;
})()`

// nameless lists what a screen reader could not name, and what a page lacks.
const nameless = `(() => {
  const found = [];
  if (document.querySelectorAll("h1").length !== 1) found.push(document.querySelectorAll("h1").length + " h1");
  for (const what of ["main", "header nav[aria-label]", "html[lang]", "title"]) if (!document.querySelector(what)) found.push("no " + what);
  for (const e of document.querySelectorAll("input:not([type=hidden]), textarea, select")) if (!e.labels?.length) found.push("no label: " + e.name);
  for (const e of document.querySelectorAll("table")) if (!e.caption?.textContent.trim()) found.push("a table without a caption");
  for (const e of document.querySelectorAll("a, button")) if (!e.textContent.trim() && !e.getAttribute("aria-label")) found.push("no name: " + e.outerHTML);
  for (const e of document.querySelectorAll("svg")) if (e.getAttribute("aria-hidden") !== "true" && !e.getAttribute("aria-label")) found.push("no name: svg");
  for (const e of document.querySelectorAll("img:not([alt])")) found.push("no alt");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push("twice: #" + id);
  for (const e of document.querySelectorAll("[aria-labelledby]")) if (!document.getElementById(e.getAttribute("aria-labelledby"))) found.push("labelled by nothing: " + e.outerHTML.slice(0, 60));
  return found;
})()`

func TestAccess(t *testing.T) {
	s := newStage(t, "/ops/idempo")
	ref := s.day()
	done := s.pay("acme", "create-payment", "order-1", 201, 0)
	paths := []string{"/", "/keys", "/keys?q=nobody", "/keys?state=issued", "/doubt", "/keys/" + ref, "/keys/" + done, "/audit", "/settings"}
	for _, look := range []view{{}, {dark: true}} {
		name := map[bool]string{false: "light", true: "dark"}[look.dark]
		t.Run("[operations/UI13] contrast, names, captions, landmarks, one h1: "+name, func(t *testing.T) {
			b := openTab(t, look)
			for _, path := range paths {
				b.open(s.url(path))
				get(b, chromedp.Evaluate[bool](`document.querySelectorAll("details").forEach((d) => { d.open = true; }), true`))
				for _, wrong := range append(get(b, chromedp.Evaluate[[]string](faint)), get(b, chromedp.Evaluate[[]string](nameless))...) {
					t.Errorf("%s: %s", path, wrong)
				}
			}
		})
	}
	t.Run("[operations/UI13] the keyboard alone settles a key, and shows where it is", func(t *testing.T) {
		b := openTab(t, view{})
		b.open(s.url("/keys/" + ref))
		at := `(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.name || e.textContent.trim(), s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 ? "seen" : "unseen"]; })()`
		var way []string
		typed := map[string]string{"to": " ", "reason": "by hand", "Settle this key": kb.Enter}
		for range 40 {
			b.do(chromedp.KeyEvent(kb.Tab))
			here := get(b, chromedp.Evaluate[[]string](at))
			way = append(way, here[0])
			if here[1] != "seen" {
				t.Errorf("the focus on %q cannot be seen", here[0])
			}
			text, ok := typed[here[0]]
			if !ok {
				continue
			}
			if text != kb.Enter {
				b.do(chromedp.KeyEvent(text))
				continue
			}
			if _, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(text)); err != nil {
				t.Fatal(err)
			}
			b.shows("Settled: it happened", "by hand")
			return
		}
		t.Errorf("never got there: %s", strings.Join(way, ", "))
	})
}
