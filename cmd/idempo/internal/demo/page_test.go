package demo

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
)

// reader looks at a page as a browser without JavaScript does.
type reader struct {
	*testing.T
	page *Page
	text string
}

func (r *reader) look(resp *http.Response, err error) *http.Response {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	r.text = string(b)
	return resp
}

func (r *reader) press(scene, do string) {
	r.Helper()
	form := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(r.text)
	if form == nil {
		r.Fatal("no form")
	}
	resp := r.look(http.PostForm(r.page.URL(), url.Values{"form": {form[1]}, "scene": {scene}, "do": {do}}))
	if resp.StatusCode != http.StatusOK {
		r.Fatalf("%s: %d %s", scene, resp.StatusCode, r.text)
	}
}

// ledgers are the charges that a scene shows: bare, guarded.
func (r *reader) ledgers(scene string) (counts []string) {
	_, rest, _ := strings.Cut(r.text, `<section id="`+scene+`"`)
	section, _, _ := strings.Cut(rest, "</section>")
	for _, m := range regexp.MustCompile(`<p class="ledger"><b>(\d+)</b>`).FindAllStringSubmatch(section, -1) {
		counts = append(counts, m[1])
	}
	return counts
}

func TestPage(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{Seed: 5, Env: os.Environ(), Browser: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := OpenPage(s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r := &reader{T: t, page: p}
	first := r.look(http.Get(p.URL()))
	t.Run("loopback, nothing from elsewhere, no script", func(t *testing.T) {
		if !strings.HasPrefix(p.URL(), "http://127.0.0.1:") || !strings.Contains(first.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Error(p.URL(), first.Header)
		}
		if strings.Contains(r.text, "<script") || strings.Contains(r.text, "style=") {
			t.Error(r.text)
		}
		for _, name := range Names() {
			if !strings.Contains(r.text, Story(name)) || len(r.ledgers(name)) != 0 {
				t.Errorf("%s is not told, or has been played", name)
			}
		}
	})
	t.Run("the scenes, side by side", func(t *testing.T) {
		for _, name := range []string{"lost", "double", "changed"} {
			r.press(name, "")
			if got := strings.Join(r.ledgers(name), " "); got != "2 1" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
	t.Run("the crash waits in doubt, and a retry does not charge", func(t *testing.T) {
		r.press("crash", "")
		if got := strings.Join(r.ledgers("crash"), " "); got != "2 1" || !strings.Contains(r.text, "In doubt.") || !strings.Contains(r.text, s.Admin()+"/doubt") {
			t.Errorf("%s\n%s", got, r.text)
		}
		if !strings.Contains(r.text, "With the library inside the service: no answer → 201 executed") {
			t.Error("the library's side is not shown")
		}
		r.press("crash", "retry")
		if got := strings.Join(r.ledgers("crash"), " "); got != "2 1" || !strings.Contains(r.text, "409 in_doubt") {
			t.Errorf("%s\n%s", got, r.text)
		}
	})
	t.Run("what did not come from the page does nothing", func(t *testing.T) {
		for _, form := range []url.Values{{"scene": {"lost"}}, {"scene": {"lost"}, "form": {"guess"}}, {"form": {p.form}, "scene": {"flood"}}} {
			if resp := r.look(http.PostForm(p.URL(), form)); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%v: %d", form, resp.StatusCode)
			}
		}
		req, _ := http.NewRequest("GET", p.URL(), nil)
		req.Host = "evil.test"
		if resp := r.look(http.DefaultClient.Do(req)); resp.StatusCode != http.StatusMisdirectedRequest {
			t.Error(resp.StatusCode)
		}
		if resp := r.look(http.Get(p.URL() + "other")); resp.StatusCode != http.StatusNotFound {
			t.Error(resp.StatusCode)
		}
	})
}
