package idemhttp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/textproto"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/idempo/idempo"
)

// ErrNoTenant is what Config.TenantFunc returns for a request without a caller: 401, never an anonymous key space.
var ErrNoTenant = errors.New("idemhttp: the request has no tenant")

// Config is fixed when New returns. All functions must be safe for concurrent use; they see the request as it came, without
// idempo's own headers, and must leave its body alone.
type Config struct {
	// TenantFunc gives the account that a request's key belongs to: of the authenticated caller, never a credential. "" and
	// ErrNoTenant mean that there is none (401); any other error, that it cannot be found out now (503). Required, unless
	// GlobalTenant is set.
	TenantFunc func(r *http.Request) (string, error)
	// GlobalTenant puts every request into tenant "default". Right only where all callers may see each other's results.
	GlobalTenant bool
	// PrincipalFunc gives who is calling within the tenant; principals then never share a key. "" and every error are 401.
	PrincipalFunc func(r *http.Request) (string, error)
	// Rules are the defaults of Wrap: they fill the fields that the rules of a route leave at zero.
	Rules Rules
	// ReplayHeader renames Idempotent-Replayed.
	ReplayHeader string
	// DocsURL is where the problems are explained: each links to it with its code as fragment.
	DocsURL string
	// ProblemFunc gives the body and its media type in place of a problem document. Status and headers stay. Its panic is
	// recovered, and the document sent.
	ProblemFunc func(r *http.Request, p Problem) (contentType string, body []byte)
	// Logger gets warnings that concern an operator. nil: no logging.
	Logger *slog.Logger
}

// Middleware guards handlers over one engine. It is safe for concurrent use.
type Middleware struct {
	engine *idempo.Engine
	config Config
	spools *spools

	cancelKey any // of detached

	mu       sync.Mutex
	guards   []*guard // in the order of Wrap
	draining bool
	running  int           // keyed requests between step 6 and the end of their answer
	idle     chan struct{} // closed when running falls to 0; nil until Drain waits
}

// New makes a middleware over engine. It fails where neither TenantFunc nor GlobalTenant says whose keys they are. It
// removes temporary files that a killed process left behind.
func New(engine *idempo.Engine, config Config) (*Middleware, error) {
	var errs []error
	if engine == nil {
		errs = append(errs, errors.New("engine is nil; pass what idempo.New returned"))
	}
	switch {
	case config.TenantFunc == nil && !config.GlobalTenant:
		errs = append(errs, errors.New("nobody says whose keys they are; set TenantFunc (the authenticated account), or GlobalTenant: true if all callers may see each other's results"))
	case config.TenantFunc != nil && config.GlobalTenant:
		errs = append(errs, errors.New("TenantFunc and GlobalTenant contradict each other; set one of them"))
	}
	if config.ReplayHeader != "" && !writable(config.ReplayHeader, "") {
		errs = append(errs, errors.New("ReplayHeader is no header name"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, joinedError("idemhttp", err)
	}
	config.ReplayHeader = textproto.CanonicalMIMEHeaderKey(cmp.Or(config.ReplayHeader, headerReplayed))
	m := &Middleware{engine: engine, config: config, spools: newSpools(), cancelKey: cancelKey()}
	if config.GlobalTenant {
		m.warn("every caller shares one key space: GlobalTenant is set")
	}
	return m, nil
}

func joinedError(prefix string, err error) error { return &prefixed{prefix, err} }

// prefixed puts the same words before every line of a joined error.
type prefixed struct {
	prefix string
	err    error
}

func (p *prefixed) Unwrap() error { return p.err }

func (p *prefixed) Error() string {
	if joined, ok := p.err.(interface{ Unwrap() []error }); ok {
		var text strings.Builder
		for i, e := range joined.Unwrap() {
			if i > 0 {
				text.WriteString("\n")
			}
			text.WriteString((&prefixed{p.prefix, e}).Error())
		}
		return text.String()
	}
	return p.prefix + ": " + p.err.Error()
}

// mergeRules fills the zero fields of r from base, but for those that the fields of r exclude.
func mergeRules(r, base Rules) Rules {
	to, from := reflect.ValueOf(&r).Elem(), reflect.ValueOf(base.yieldTo(r))
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return r
}

// CORSAllowHeaders lists the request headers that a browser must be allowed to send: the key headers of everything wrapped so
// far, Idempotency-Key at least.
func (m *Middleware) CORSAllowHeaders() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := []string{"Idempotency-Key"}
	for _, g := range m.guards {
		for _, name := range g.keyHeaders() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// CORSExposeHeaders lists the answer headers that a browser's script must be allowed to read.
func (m *Middleware) CORSExposeHeaders() []string {
	return []string{m.config.ReplayHeader, headerStatus, headerExpires, headerKeyNext, "Retry-After"}
}

// Drain answers new keyed requests with 503 and waits until the running ones are settled and answered, those included whose
// client is gone. It returns how many are left when ctx ends, 0 if none. It is not undone.
func (m *Middleware) Drain(ctx context.Context) (left int) {
	m.mu.Lock()
	m.draining = true
	if m.running == 0 {
		m.mu.Unlock()
		return 0
	}
	if m.idle == nil {
		m.idle = make(chan struct{})
	}
	idle := m.idle
	m.mu.Unlock()
	select {
	case <-idle:
		return 0
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.running
	}
}

// enter counts a request in, unless the middleware drains.
func (m *Middleware) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return false
	}
	m.running++
	return true
}

func (m *Middleware) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	if m.running == 0 && m.idle != nil {
		close(m.idle)
		m.idle = nil
	}
}

func (m *Middleware) warn(text string, args ...any) {
	if m.config.Logger == nil {
		return
	}
	defer func() { _ = recover() }() // a logger's panic changes nothing
	m.config.Logger.Warn("idemhttp: "+text, args...)
}

func (m *Middleware) fault(text string, args ...any) {
	if m.config.Logger == nil {
		return
	}
	defer func() { _ = recover() }()
	m.config.Logger.Error("idemhttp: "+text, args...)
}

// passed counts a keyed request that ran unguarded.
func (m *Middleware) passed(ctx context.Context, operation, why string) {
	m.engine.Report(ctx, idempo.Event{Kind: "passthrough", Operation: operation, Surface: "http", Class: why})
}

// WriteProblem answers r with p, through ProblemFunc and with a link to DocsURL where these are set. Headers that are already
// set stay.
func (m *Middleware) WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	if m.config.DocsURL != "" {
		w.Header().Add("Link", "<"+m.config.DocsURL+"#"+p.Code+`>; rel="describedby"`)
	}
	if kind, body, ok := m.problemBody(r, p); ok {
		p.write(w, kind, body)
		return
	}
	p.Write(w)
}

func (m *Middleware) problemBody(r *http.Request, p Problem) (kind string, body []byte, ok bool) {
	if m.config.ProblemFunc == nil {
		return "", nil, false
	}
	defer func() {
		if v := recover(); v != nil {
			m.fault("ProblemFunc panicked; the problem document is sent", "error_code", p.Code)
			ok = false
		}
	}()
	kind, body = m.config.ProblemFunc(r, p)
	return kind, body, true
}
