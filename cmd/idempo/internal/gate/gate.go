package gate

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/operator"
)

// Config of a Gate.
type Config struct {
	Mode    string // token, basic, header, none
	Token   string // mode token
	Users   map[string]User
	Header  string         // mode header: that names the user
	Trusted []netip.Prefix // mode header: whose header is believed
	Secure  bool           // browsers reach it by TLS, though this process may not
	Actor   string         // who is proposed as the name at a login by token; with mode none: who everybody is
	Clock   func() time.Time
}

// User is what somebody may do. The name * stands for everybody that a proxy vouches for and who has no entry.
type User struct {
	Password string // bcrypt
	Role     operator.Role
	Tenants  []string // nil: all
}

// Gate knows who is logged in. It is safe for concurrent use.
type Gate struct {
	config Config
	secret [32]byte // of digests in memory
	nobody []byte   // hash of a password that nobody knows: who is not there is refused in the time of one who is

	mu       sync.Mutex
	sessions map[[32]byte]session
	codes    map[[32]byte]time.Time // until when a one-use code lives
	known    map[[32]byte]time.Time // passwords that were right, until when that is believed
	failed   map[string][]time.Time // logins by address
}

type session struct {
	by    dashboard.Principal
	until time.Time
}

const (
	sessionLife = 12 * time.Hour
	codeLife    = time.Hour
	knownLife   = 5 * time.Minute
	maxFailures = 10 // a minute and address
	maxSessions = 1000
	maxPeers    = 10_000
	cookieName  = "idempo_session"
)

// New returns a gate; an error where the mode lacks what it needs.
func New(c Config) (*Gate, error) {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	switch {
	case c.Mode == "token" && len(c.Token) < 16:
		return nil, errors.New("gate: no token")
	case c.Mode == "basic" && len(c.Users) == 0:
		return nil, errors.New("gate: no users")
	case c.Mode == "header" && (c.Header == "" || len(c.Trusted) == 0 || len(c.Users) == 0):
		return nil, errors.New("gate: header needs its name, who may set it, and users")
	case c.Mode != "token" && c.Mode != "basic" && c.Mode != "header" && c.Mode != "none":
		return nil, errors.New("gate: unknown mode " + c.Mode)
	}
	g := &Gate{config: c, sessions: map[[32]byte]session{}, codes: map[[32]byte]time.Time{}, known: map[[32]byte]time.Time{}, failed: map[string][]time.Time{}}
	_, _ = rand.Read(g.secret[:]) // never fails since Go 1.24
	if c.Mode != "basic" {
		return g, nil
	}
	var err error
	g.nobody, err = bcrypt.GenerateFromPassword([]byte(rand.Text()), bcrypt.DefaultCost)
	return g, err
}

// Code returns a code that logs in once, within an hour.
func (g *Gate) Code() string {
	code := rand.Text()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.codes[g.digest(code)] = g.config.Clock().Add(codeLife)
	return code
}

// digest is a secret as it is kept in memory and looked up: equal digests, equal secrets, and no time tells how near one was.
func (g *Gate) digest(parts ...string) (d [32]byte) {
	mac := hmac.New(sha256.New, g.secret[:])
	for _, p := range parts {
		mac.Write([]byte(p))
		mac.Write([]byte{0})
	}
	mac.Sum(d[:0])
	return d
}

// same compares two secrets in a time that depends on neither.
func (g *Gate) same(a, b string) bool {
	x, y := g.digest(a), g.digest(b)
	return hmac.Equal(x[:], y[:])
}

// Authorize says who a request comes from; the error is *dashboard.Denied.
func (g *Gate) Authorize(r *http.Request) (dashboard.Principal, error) {
	switch g.config.Mode {
	case "none":
		return dashboard.Principal{Actor: g.config.Actor, Role: operator.RoleAdmin}, nil
	case "header":
		return g.byHeader(r)
	case "basic":
		return g.byPassword(r)
	}
	return g.byToken(r)
}

func (g *Gate) byToken(r *http.Request) (dashboard.Principal, error) {
	if given := r.Header.Get("Authorization"); given != "" { // cookies do not count beside it
		if g.locked(r) {
			return dashboard.Principal{}, tooMany()
		}
		scheme, token, _ := strings.Cut(given, " ")
		if !strings.EqualFold(scheme, "bearer") || !g.same(token, g.config.Token) {
			g.failure(r)
			return dashboard.Principal{}, &dashboard.Denied{Challenge: `Bearer realm="idempo"`}
		}
		return dashboard.Principal{Actor: "token", Role: operator.RoleAdmin}, nil
	}
	c, err := r.Cookie(cookieName)
	if err != nil {
		return dashboard.Principal{}, &dashboard.Denied{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.sessions[g.digest(c.Value)]
	if !ok || !g.config.Clock().Before(s.until) {
		return dashboard.Principal{}, &dashboard.Denied{}
	}
	return s.by, nil
}

// byHeader believes a header that a trusted proxy set, once.
func (g *Gate) byHeader(r *http.Request) (dashboard.Principal, error) {
	peer, err := netip.ParseAddr(address(r))
	values := r.Header.Values(g.config.Header)
	if err != nil || !contains(g.config.Trusted, peer.Unmap()) || len(values) != 1 || values[0] == "" || len(values[0]) > 255 {
		return dashboard.Principal{}, &dashboard.Denied{}
	}
	u, ok := g.config.Users[values[0]]
	if !ok || values[0] == "*" {
		if u, ok = g.config.Users["*"]; !ok {
			return dashboard.Principal{}, &dashboard.Denied{}
		}
	}
	return dashboard.Principal{Actor: values[0], Role: u.Role, Tenants: u.Tenants}, nil
}

func contains(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// byPassword checks name and password. A check takes long on purpose, so one that succeeded is believed for a while.
func (g *Gate) byPassword(r *http.Request) (dashboard.Principal, error) {
	denied := &dashboard.Denied{Challenge: `Basic realm="idempo", charset="UTF-8"`}
	name, password, ok := r.BasicAuth()
	if !ok {
		return dashboard.Principal{}, denied
	}
	if g.locked(r) {
		return dashboard.Principal{}, tooMany()
	}
	u, exists := g.config.Users[name]
	by := dashboard.Principal{Actor: name, Role: u.Role, Tenants: u.Tenants}
	d := g.digest(name, password, u.Password)
	g.mu.Lock()
	until := g.known[d]
	g.mu.Unlock()
	now := g.config.Clock()
	if exists && now.Before(until) {
		return by, nil
	}
	hash := []byte(u.Password)
	if !exists {
		hash = g.nobody
	}
	if err := bcrypt.CompareHashAndPassword(hash, []byte(password)); err != nil || !exists {
		g.failure(r)
		return dashboard.Principal{}, denied
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for old, end := range g.known {
		if !now.Before(end) {
			delete(g.known, old)
		}
	}
	g.known[d] = now.Add(knownLife)
	return by, nil
}

func tooMany() *dashboard.Denied {
	return &dashboard.Denied{Status: http.StatusTooManyRequests, RetryAfter: time.Minute}
}

func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// locked says whether an address has failed too often in the last minute.
func (g *Gate) locked(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.recent(address(r))) >= maxFailures
}

func (g *Gate) failure(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) >= maxPeers {
		for peer := range g.failed {
			g.recent(peer)
		}
		if len(g.failed) >= maxPeers {
			clear(g.failed)
		}
	}
	peer := address(r)
	g.failed[peer] = append(g.recent(peer), g.config.Clock())
}

// recent are the failures of the last minute; older ones are forgotten.
func (g *Gate) recent(peer string) []time.Time {
	all, now := g.failed[peer], g.config.Clock()
	for len(all) > 0 && now.Sub(all[0]) >= time.Minute {
		all = all[1:]
	}
	if len(all) == 0 {
		delete(g.failed, peer)
	} else {
		g.failed[peer] = all
	}
	return all
}
