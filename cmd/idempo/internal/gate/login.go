package gate

import (
	"bytes"
	"crypto/rand"
	"embed"
	"html/template"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/operator"
)

//go:embed login.html
var files embed.FS

// form is what the page of the login shows.
type form struct {
	Name, Code, Next, Problem string
}

// ServeHTTP is the login: a page on GET, which changes nothing, and POST to log in or, under /login/out, to log out.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	f := form{Name: g.config.Actor, Code: r.FormValue("code"), Next: local(r.FormValue("next"))}
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/login":
		g.page(w, http.StatusOK, f)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case !dashboard.SameOrigin(r):
		f.Problem = "The form came from another site."
		g.page(w, http.StatusForbidden, f)
	case r.URL.Path == "/login/out":
		g.out(w, r)
	default:
		g.in(w, r, f)
	}
}

// local lets nothing through but a path of this very server.
func local(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}

// in logs in by a one-use code or the token.
func (g *Gate) in(w http.ResponseWriter, r *http.Request, f form) {
	f.Name = strings.TrimSpace(r.PostFormValue("name"))
	if g.locked(r) {
		f.Problem = "Too many failed logins from here. Wait a minute."
		w.Header().Set("Retry-After", "60")
		g.page(w, http.StatusTooManyRequests, f)
		return
	}
	if f.Name == "" || len(f.Name) > 100 || !utf8.ValidString(f.Name) || strings.ContainsFunc(f.Name, unicode.IsControl) {
		f.Problem = "Say who you are, in at most 100 bytes: the audit keeps it."
		g.page(w, http.StatusUnprocessableEntity, f)
		return
	}
	if !g.redeem(f.Code) && !g.same(strings.TrimSpace(r.PostFormValue("token")), g.config.Token) {
		g.failure(r)
		f.Problem = "That is not the token."
		if f.Code != "" {
			f.Problem = "The link was used already, or is over an hour old. Give the token instead."
		}
		f.Code = ""
		g.page(w, http.StatusUnauthorized, f)
		return
	}
	value := rand.Text()
	g.mu.Lock()
	now := g.config.Clock()
	for d, s := range g.sessions {
		if !now.Before(s.until) || len(g.sessions) >= maxSessions {
			delete(g.sessions, d)
		}
	}
	g.sessions[g.digest(value)] = session{by: dashboard.Principal{Actor: f.Name, Role: operator.RoleAdmin}, until: now.Add(sessionLife)}
	g.mu.Unlock()
	g.cookie(w, r, value, int(sessionLife.Seconds()))
	http.Redirect(w, r, f.Next, http.StatusSeeOther)
}

// redeem uses a code up.
func (g *Gate) redeem(code string) bool {
	if code == "" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.digest(code)
	until, ok := g.codes[d]
	delete(g.codes, d)
	return ok && g.config.Clock().Before(until)
}

func (g *Gate) out(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		g.mu.Lock()
		delete(g.sessions, g.digest(c.Value))
		g.mu.Unlock()
	}
	g.cookie(w, r, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

func (g *Gate) cookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: g.config.Secure || r.TLS != nil, SameSite: http.SameSiteStrictMode})
}

func (g *Gate) page(w http.ResponseWriter, status int, f form) {
	t, err := template.ParseFS(files, "login.html")
	var b bytes.Buffer
	if err == nil {
		err = t.Execute(&b, f)
	}
	if err != nil {
		http.Error(w, "something went wrong here", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}
