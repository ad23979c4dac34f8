package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

//go:embed page.html page.css
var pageFiles embed.FS

// Page shows the scenes side by side in a browser: each is played on request, bare and guarded, and the ledgers are counted again
// whenever the page is looked at. It works without JavaScript and loads nothing from elsewhere. Open the stage with Options.Browser,
// so that the crash waits in doubt for a person instead of being settled by itself.
type Page struct {
	stage *Stage
	view  *template.Template
	form  string // a token that only this page knows
	l     net.Listener
	srv   *http.Server

	mu     sync.Mutex
	played map[string]*playedScene
}

// playedScene is a scene as it stands now.
type playedScene struct {
	Outcome
	key    string
	amount int64
}

// OpenPage serves the page on a free port of loopback. The caller closes it before the stage.
func OpenPage(s *Stage) (*Page, error) {
	view, err := template.New("page.html").Funcs(template.FuncMap{"cents": cents}).ParseFS(pageFiles, "page.html")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Page{stage: s, view: view, form: rand.Text(), l: l, played: map[string]*playedScene{}}
	p.srv = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.srv.Serve(l) }() // ends with Close
	return p, nil
}

// URL is where the page is.
func (p *Page) URL() string { return "http://" + p.l.Addr().String() + "/" }

// Close ends the page.
func (p *Page) Close() error { return p.srv.Close() }

// ServeHTTP serves the page, its style sheet, and the two things that can be done: play a scene, and retry after the crash.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if r.Host != p.l.Addr().String() {
		http.Error(w, "this page is on this machine only", http.StatusMisdirectedRequest)
		return
	}
	switch {
	case r.URL.Path == "/page.css" && r.Method == http.MethodGet:
		b, _ := pageFiles.ReadFile("page.css")
		h.Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(b)
	case r.URL.Path == "/" && r.Method == http.MethodGet:
		p.show(w)
	case r.URL.Path == "/" && r.Method == http.MethodPost:
		p.act(w, r)
	default:
		http.NotFound(w, r)
	}
}

// act plays a scene, or retries in one that was played.
func (p *Page) act(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
	scene := r.PostFormValue("scene")
	if r.PostFormValue("form") != p.form || !slices.Contains(Names(), scene) {
		http.Error(w, "this did not come from the page: open it again", http.StatusForbidden)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if one := p.played[scene]; r.PostFormValue("do") == "retry" && one != nil {
		err = p.stage.retry(r.Context(), one)
	} else {
		p.played[scene], err = p.stage.playHeld(r.Context(), scene)
	}
	if err != nil {
		delete(p.played, scene)
		http.Error(w, "the scene could not be played: "+err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/#"+scene, http.StatusSeeOther)
}

type sceneView struct {
	Name, Story string
	Played      *playedScene
	Waits       bool // in doubt: it waits for a person
}

func (p *Page) show(w http.ResponseWriter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data := struct {
		Form, Admin string
		Scenes      []sceneView
	}{Form: p.form, Admin: p.stage.Admin()}
	for _, name := range Names() {
		v := sceneView{Name: name, Story: Story(name), Played: p.played[name]}
		v.Waits = v.Played != nil && v.Played.waits()
		data.Scenes = append(data.Scenes, v)
	}
	var b bytes.Buffer
	if err := p.view.Execute(&b, data); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// waits says that the last answer of the guarded side was in doubt.
func (s *playedScene) waits() bool {
	return len(s.Verdicts) > 0 && s.Verdicts[len(s.Verdicts)-1] == "in_doubt"
}

// playHeld plays a scene as Play does, but for the crash behind the gateway: its client gives up after a second answer in doubt, so
// that the key waits for a person.
func (s *Stage) playHeld(ctx context.Context, scene string) (*playedScene, error) {
	if scene != "crash" {
		o, err := s.Play(ctx, scene)
		return &playedScene{Outcome: o}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	one := &playedScene{key: fmt.Sprintf("demo-crash-%06x", s.random.Uint32()&0xffffff), amount: int64(100 * (5 + s.random.IntN(95)))}
	one.Outcome = Outcome{Scene: scene, Intents: 1, Request: fmt.Sprintf("POST /v1/payments  %s  Idempotency-Key: %s", cents(one.amount), one.key)}
	bare := request{url: "http://" + s.bareWire.address(), key: one.key, amount: one.amount, header: crashHeader}
	guarded := bare
	guarded.url = "http://" + s.gatewayWire.address()
	var failed error
	a := bare.persist(ctx, func() { failed = join(failed, s.revive(&s.bare, "bare")) })
	b := []attempt{guarded.send(ctx)}
	<-s.behind.exited
	failed = join(failed, s.revive(&s.behind, "guarded"))
	b = append(b, guarded.send(ctx))
	var err error
	one.Library, err = s.library(ctx, one.key, one.amount)
	one.Verdicts = words(b)
	if failed = join(failed, err); failed == nil {
		one.Bare, failed = s.side("bare", one.key, a)
	}
	if failed == nil {
		one.Guarded, failed = s.side("guarded", one.key, b)
	}
	return one, failed
}

// retry sends the guarded request once more, as the client would.
func (s *Stage) retry(ctx context.Context, one *playedScene) error {
	again := request{url: "http://" + s.gatewayWire.address(), key: one.key, amount: one.amount}
	a := again.send(ctx)
	one.Verdicts = append(one.Verdicts, words([]attempt{a})...)
	before := one.Guarded.Answers
	side, err := s.side("guarded", one.key, []attempt{a})
	side.Answers = append(before, side.Answers...)
	one.Guarded = side
	return err
}
