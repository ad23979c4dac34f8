package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/operator"
)

// Principal is who looks at a page: name, role and, where it is limited, the tenants it may see.
type Principal = operator.Principal

// Config of a Handler. Operator and Authorize are required; the zero value of everything else works.
type Config struct {
	Operator *operator.Service
	// Prefix is where the handler is mounted, "/ops/idempo" for instance; "": at the root.
	Prefix string
	// Authorize says who a request comes from. An error is answered 401, or sent to Login; *Denied has a status of its own. A
	// Principal without a role sees nothing. It is called for every request but those for assets and Login; a request with a
	// bearer token reaches it without its cookies.
	Authorize func(r *http.Request) (Principal, error)
	// Login, where set, serves Prefix/login and below without Authorize: pages of that login. Who is not logged in is sent there.
	Login http.Handler
	// Hosts are the host names that requests may be made under, without port; anything else is 421, which stops DNS rebinding. nil:
	// any, since the application around has its own login and its own way to tell.
	Hosts []string
	// FormKey makes the form tokens, at least 32 bytes. Give several processes behind one address the same. Default: random.
	FormKey []byte
	// Operations are what is declared; shown on the settings page. May be nil.
	Operations func() []idempo.Operation
	// Settings are the effective settings, secrets masked already; shown on the settings page. May be nil.
	Settings func() []Setting
	// Contract is what callers are promised; shown on a page of its own and served as documents. nil: there is no such page.
	Contract func() *contract.Contract
	// Report is what a check observed; shown beside what is declared. nil, or a nil report: declared alone.
	Report func() (*contract.Report, error)
	// Meter counts what this process does, and knows what all have counted; overview and mismatches show it. May be nil.
	Meter *operator.Meter
	// Product is a version, shown in the footer.
	Product string
	// Log gets faults; a page shows a reference to them, not the text. Default: none.
	Log *slog.Logger
	// PollEvery is how often the store is asked for news while anybody watches. Default 2s.
	PollEvery time.Duration
}

// Setting is one line of the settings page.
type Setting struct{ Path, Value, Origin string }

// Denied is an error of Authorize with a status of its own: 401 with a challenge, 429.
type Denied struct {
	Status     int           // 0: 401
	Challenge  string        // WWW-Authenticate
	RetryAfter time.Duration // of a 429
}

// Error says nothing about why.
func (d *Denied) Error() string { return "not authorized" }

// Handler serves the dashboard. It is safe for concurrent use. Two of them know nothing of each other.
type Handler struct {
	config Config
	mux    *http.ServeMux
	pages  map[string]*template.Template
	hub    *hub
}

// New returns the dashboard. It is an error to leave out Operator or Authorize: an operator's view without a login is none.
func New(c Config) (*Handler, error) {
	switch {
	case c.Operator == nil:
		return nil, errors.New("dashboard: no Operator")
	case c.Authorize == nil:
		return nil, errors.New("dashboard: no Authorize: say who may see and do what")
	case c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || strings.HasSuffix(c.Prefix, "/") || c.Prefix != (&url.URL{Path: c.Prefix}).EscapedPath()):
		return nil, fmt.Errorf("dashboard: the prefix %q does not begin with /, ends with one or needs escapes", c.Prefix)
	case c.FormKey != nil && len(c.FormKey) < 32:
		return nil, errors.New("dashboard: FormKey under 32 bytes")
	}
	if c.FormKey == nil {
		c.FormKey = make([]byte, 32)
		_, _ = rand.Read(c.FormKey) // never fails since Go 1.24
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.PollEvery <= 0 {
		c.PollEvery = 2 * time.Second
	}
	h := &Handler{config: c, mux: http.NewServeMux(), hub: newHub(c.Operator, c.PollEvery)}
	var err error
	if h.pages, err = parsePages(); err != nil {
		return nil, err
	}
	h.routes()
	return h, nil
}

// Clients is how many live streams are open.
func (h *Handler) Clients() int { return h.hub.count() }

// Close ends the live streams and the asking behind them. Pages are still served.
func (h *Handler) Close() { h.hub.close() }

func (h *Handler) routes() {
	page := func(pattern string, serve func(*visit) error) {
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h.visit(w, r, false, serve) })
	}
	page("GET /{$}", h.overview)
	page("GET /keys", h.keys)
	page("GET /keys.ndjson", h.exportKeys)
	page("GET /keys/{ref}", h.key)
	page("POST /keys/{ref}/{action}", h.act)
	page("POST /bulk", h.bulk)
	page("GET /doubt", h.doubt)
	page("GET /mismatches", h.mismatches)
	page("GET /audit", h.audit)
	page("GET /audit.ndjson", h.exportAudit)
	page("GET /settings", h.settings)
	page("GET /contract", h.contract)
	page("GET /contract/{file}", h.document)
	page("GET /events", h.events)
	page("/", func(*visit) error { return &fault{status: http.StatusNotFound} })
	h.mux.HandleFunc("GET /assets/{file}", serveAsset)
	if h.config.Login != nil {
		h.mux.Handle("/login", h.config.Login)
		h.mux.Handle("/login/", h.config.Login)
	}
	h.apiRoutes()
}

// ServeHTTP serves everything under Prefix.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if h.config.Hosts != nil && !slices.Contains(h.config.Hosts, hostOf(r.Host)) {
		h.fail(&visit{w: w, r: r, h: h}, &fault{status: http.StatusMisdirectedRequest})
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, h.config.Prefix)
	switch {
	case ok && rest == "" && h.config.Prefix != "":
		http.Redirect(w, r, h.config.Prefix+"/", http.StatusMovedPermanently)
		return
	case !ok || !strings.HasPrefix(rest, "/"):
		http.NotFound(w, r)
		return
	}
	in := r.Clone(r.Context())
	in.URL.Path, in.URL.RawPath = rest, ""
	h.mux.ServeHTTP(w, in)
}

// secure sets what every answer carries: nothing inline, nothing foreign, never in a frame, never kept.
func secure(head http.Header) {
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// hostOf is the name in a Host header, lower case, without port and brackets.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// visit is one request of somebody who is known.
type visit struct {
	h    *Handler
	w    http.ResponseWriter
	r    *http.Request
	by   Principal
	form string // value of the form cookie
	api  bool
}

func (v *visit) ctx() context.Context { return v.r.Context() }

// bearer says whether the request carries a bearer token; its cookies do not count then.
func bearer(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "bearer")
}

// visit authorizes a request and serves it.
func (h *Handler) visit(w http.ResponseWriter, r *http.Request, api bool, serve func(*visit) error) {
	if bearer(r) {
		r.Header = r.Header.Clone()
		r.Header.Del("Cookie")
	}
	v := &visit{h: h, w: w, r: r, api: api}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			h.fail(v, fmt.Errorf("panic: %v", p))
		}
	}()
	by, err := h.config.Authorize(r)
	if err != nil {
		h.unauthorized(v, err)
		return
	}
	by.Channel = "dashboard"
	if api {
		by.Channel = "api"
	}
	v.by = by
	if by.Role == "" {
		h.fail(v, &fault{status: http.StatusForbidden})
		return
	}
	v.form = h.session(w, r)
	if r.Method == http.MethodPost {
		if err := h.checkForm(v); err != nil {
			h.fail(v, err)
			return
		}
	}
	if err := serve(v); err != nil {
		h.fail(v, err)
	}
}

// unauthorized sends who is not known to the login, or says 401.
func (h *Handler) unauthorized(v *visit, err error) {
	d, ok := errors.AsType[*Denied](err)
	if !ok {
		d = &Denied{}
	}
	f := &fault{status: http.StatusUnauthorized, retryAfter: d.RetryAfter}
	if d.Status != 0 {
		f.status = d.Status
	}
	if d.Challenge != "" {
		v.w.Header().Set("WWW-Authenticate", d.Challenge)
	}
	if h.config.Login != nil && !v.api && f.status == http.StatusUnauthorized && v.r.URL.Path != "/events" {
		to := h.config.Prefix + "/login"
		if v.r.Method == http.MethodGet && v.r.URL.Path != "/" {
			to += "?next=" + url.QueryEscape(v.r.URL.RequestURI())
		}
		http.Redirect(v.w, v.r, to, http.StatusSeeOther)
		return
	}
	h.fail(v, f)
}
