package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/operator"
)

//go:embed pages assets
var files embed.FS

// pageData is what layout.html and the page in it are made of.
type pageData struct {
	Title   string
	Nav     string // the page that the navigation marks
	Prefix  string
	By      Principal
	Form    string // token
	Doubt   int64  // keys in doubt, for the badge
	Product string
	Login   bool
	Promise bool // there is a page Contract
	Bare    bool // nobody is logged in: no navigation
	Failure *failure
	Body    any
}

// parsePages makes the templates: each page within the layout.
func parsePages() (map[string]*template.Template, error) {
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		return nil, err
	}
	shared := []string{"pages/layout.html", "pages/parts.html"}
	all := map[string]*template.Template{}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if page == "layout" || page == "parts" {
			continue
		}
		if all[page], err = template.New("layout.html").Funcs(pageFuncs()).ParseFS(files, append(shared, name)...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// render writes a page. It is made whole before the first byte leaves, so that a fault in it is a fault and not half a page.
func (v *visit) render(status int, page string, d pageData) {
	c := v.h.config
	d.Prefix, d.By, d.Form, d.Product, d.Login, d.Promise = c.Prefix, v.by, v.formToken(), c.Product, c.Login != nil, c.Contract != nil
	if !d.Bare && d.Doubt == 0 {
		d.Doubt = v.h.hub.doubt(v.ctx(), v.by)
	}
	var b bytes.Buffer
	if err := v.h.pages[page].Execute(&b, d); err != nil {
		c.Log.Error("dashboard", "page", page, "error", err.Error())
		http.Error(v.w, "something went wrong here; it is in the log", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(b.Bytes())
	}
}

// serveAsset serves the style sheet, the script and the pictures. They hold nothing secret.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := files.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(b)
}

func pageFuncs() template.FuncMap {
	return template.FuncMap{
		"ago": ago, "span": span, "stamp": stamp, "iso": iso, "stateName": stateName, "stateText": stateText, "count": count,
		"thousands": thousands, "verb": verb, "link": link, "short": short, "next": func(n int64) int64 { return max(n, 1) + 1 }, "percent": percent,
		"bytes": size, "period": period, "plain": func(s string) string { return strings.ReplaceAll(s, "`", "") }, "capital": capital, "dict": dict, "stateWord": func(s string) string { return strings.ReplaceAll(s, "in_doubt", "in doubt") }, "thousands64": func(n int) string { return thousands(int64(n)) },
	}
}

// dict makes a map for a part that needs several values.
func dict(pairs ...any) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// link is a path with a query.
func link(base string, q url.Values) string {
	if len(q) == 0 {
		return base
	}
	return base + "?" + q.Encode()
}

// short is a reference that fits where space is small.
func short(ref string) string {
	if len(ref) < 14 {
		return ref
	}
	return ref[:9] + "…" + ref[len(ref)-4:]
}

// stateName is a state in words.
func stateName(s idempo.State) string { return strings.ReplaceAll(string(s), "_", " ") }

// stateText is what a state means, in one sentence.
func stateText(s idempo.State) string {
	switch s {
	case idempo.StateIssued:
		return "Handed out as a one-time key, not used yet."
	case idempo.StatePending:
		return "Somebody is at work on it."
	case idempo.StateCompleted:
		return "Done. Every retry gets the stored answer."
	case idempo.StateFailed:
		return "Known: nothing happened. The next call with this key runs."
	case idempo.StateInDoubt:
		return "It may have happened, and nobody has proved either way."
	case idempo.StateExpired:
		return "Done, and the answer is no longer kept. A retry is told so and not run."
	case operator.StateUnreadable:
		return "The row cannot be read: it was garbled, or a newer release wrote it. Nobody runs, answers, changes or sweeps it."
	}
	return "Removed."
}

// verb is an action in words, as on a button.
func verb(a operator.Action) string { return capital(string(a)) }

func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// ago is how long before now t was, in the largest unit that still says something.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := now.Sub(t)
	if d < 0 {
		return "in " + span(-d)
	}
	if d < time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

// span is a duration for people: two units at most.
func span(d time.Duration) string {
	day := 24 * time.Hour
	switch {
	case d < 0:
		return "–"
	case d == idempo.Forever:
		return "for ever"
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "min")
	}
	return two(d, day, "d", time.Hour, "h")
}

// period is an ISO 8601 duration of a contract for people.
func period(text string) string {
	d, err := contract.ParseDuration(text)
	if err != nil {
		return "–"
	}
	return span(d)
}

func two(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/big, bigName)
	if rest := d % big / small; rest > 0 && d/big < 10 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// count is a number that says so where it is an estimate.
func count(c operator.Count) string {
	if c.Estimate {
		return "about " + thousands(c.Records)
	}
	return thousands(c.Records)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent of part in whole, in words that never round something to nothing.
func percent(part, whole int64) string {
	switch p := float64(part) / float64(max(whole, 1)) * 100; {
	case part == 0:
		return "0 %"
	case p < 0.1:
		return "< 0.1 %"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

// size is a number of bytes.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
