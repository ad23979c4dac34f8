package gateway

import (
	"log/slog"
	"time"
)

// Config is everything a gateway is told. Its shape is that of the configuration file's key "gateway": each field's
// yaml tag is the name there, and words are spelled as there (`OnCrash: "hold"`). The package itself reads no file.
//
// A zero field means its default. [New] copies what it needs: changing a Config afterwards changes nothing.
// Paths of files are used as they are given; who reads a configuration file makes them absolute first.
type Config struct {
	// TLS makes [Gateway.Listener] speak TLS. Zero: plain text.
	TLS TLS `yaml:"tls"`
	// TrustedProxies are addresses and networks ("10.0.0.0/8") whose forwarding and tenant headers are believed.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// Tenant says who the caller is. One source is required as soon as a route is guarded.
	Tenant Tenant `yaml:"tenant"`
	// Timeouts bound what a client may take.
	Timeouts Timeouts `yaml:"timeouts"`
	// CORS lets browsers of these origins read problems and replays.
	CORS CORS `yaml:"cors"`
	// AllowMethodOverride keeps X-HTTP-Method-Override and its kin on forwarded requests. They are removed otherwise.
	AllowMethodOverride bool `yaml:"allow_method_override"`
	// Upstreams by name.
	Upstreams map[string]Upstream `yaml:"upstreams"`
	// Routes in any order: the most specific pattern wins.
	Routes []Route `yaml:"routes"`

	// Limits stands under the file's top-level key "limits".
	Limits Limits `yaml:"-"`
	// Outbound stands under the file's top-level key "outbound": where jwks_url and forward_auth may lead.
	Outbound Outbound `yaml:"-"`
	// DocsURL, if set, is linked from every problem (`Link: <DocsURL#code>; rel="describedby"`).
	DocsURL string `yaml:"-"`
	// Log gets what an operator must hear of. Nil: nothing is logged. No key, tenant or payload is ever logged.
	Log *slog.Logger `yaml:"-"`
	// Observe, if set, is told of every forwarded request of a guarded route and of every breaker that moved. It is
	// called on the request's goroutine; a panic in it is recovered and changes nothing.
	Observe func(Event) `yaml:"-"`
}

// TLS is the listener's certificate. Files are read again when they change, without dropping a connection.
type TLS struct {
	Cert string `yaml:"cert"` // PEM file: the certificate and its chain
	Key  string `yaml:"key"`  // PEM file: its private key
}

// Tenant names exactly one source of the caller's tenant.
type Tenant struct {
	// Header is the name of a request header that a trusted proxy sets. It needs TrustedProxies.
	Header string `yaml:"header"`
	// JWT takes the tenant from a claim of a verified bearer token.
	JWT *JWT `yaml:"jwt"`
	// MTLS takes the tenant from the client's verified certificate. It needs TLS.
	MTLS *MTLS `yaml:"mtls"`
	// ForwardAuth asks an HTTP endpoint for each keyed request.
	ForwardAuth *ForwardAuth `yaml:"forward_auth"`
	// Global puts every caller into the one tenant "default": right only where one client uses the gateway.
	Global bool `yaml:"global"`
	// Principal, if set, separates keys inside a tenant: the name of a header (header, forward_auth) or claim (jwt).
	// A caller without it is refused.
	Principal string `yaml:"principal"`
}

// JWT verifies `Authorization: Bearer` tokens. Tokens must carry exp; 60 s of leeway are given to exp and nbf.
type JWT struct {
	JWKSFile   string   `yaml:"jwks_file"`  // a key set on disk, read again when it changes; or
	JWKSURL    string   `yaml:"jwks_url"`   // where the key set is fetched, https, through the dial guard
	Algorithms []string `yaml:"algorithms"` // those accepted: RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA
	Audience   string   `yaml:"audience"`   // required value of aud; "" checks none
	Issuer     string   `yaml:"issuer"`     // required value of iss; "" checks none
	Claim      string   `yaml:"claim"`      // the claim that holds the tenant, a text
}

// MTLS verifies client certificates against CA. A connection without one is served; keyed requests on it get 401.
type MTLS struct {
	CA   string `yaml:"ca"`   // PEM file of the accepted authorities
	From string `yaml:"from"` // cn (default), san_dns, san_uri or san_email; several values there are refused
}

// ForwardAuth asks URL with one GET per keyed request.
type ForwardAuth struct {
	URL          string        `yaml:"url"`
	Headers      []string      `yaml:"headers"`       // request headers passed on to it
	TenantHeader string        `yaml:"tenant_header"` // the header of its 2xx answer that names the tenant
	Timeout      time.Duration `yaml:"timeout"`       // default 5s
}

// Timeouts bound a client. Zero means the default.
type Timeouts struct {
	ReadHeader time.Duration `yaml:"read_header"` // whole request head; default 10s
	ReadBody   time.Duration `yaml:"read_body"`   // whole body of a guarded request, each 64 KiB of another; default 60s
	Idle       time.Duration `yaml:"idle"`        // between two requests; default 120s
	Write      time.Duration `yaml:"write"`       // each write of an answer; default 60s
}

// CORS names the origins, as a browser spells them ("https://shop.example"), or "*".
type CORS struct {
	Origins []string `yaml:"origins"`
}

// Limits bound what a peer may use. Zero means the default.
type Limits struct {
	Head               int `yaml:"head"`                 // bytes of a request head; default 32 KiB
	ConnectionsPerPeer int `yaml:"connections_per_peer"` // per address of a peer; default 1,000; trusted proxies are exempt
	H2Streams          int `yaml:"h2_streams"`           // concurrent streams of a connection; default 250
}

// Outbound says which networks besides public ones, and which ports, jwks_url and forward_auth may reach.
type Outbound struct {
	Allow []string `yaml:"allow"` // networks; default none
	Ports []int    `yaml:"ports"` // default 80, 443
}

// Upstream is one service, at one or more addresses that are equals.
type Upstream struct {
	// URLs are scheme and host, without a path: the path forwarded is the one received, byte by byte.
	URLs []string `yaml:"urls"`
	// ConnectTimeout bounds name resolution and dialling; default 2s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// TLSTimeout bounds the handshake; default 5s.
	TLSTimeout time.Duration `yaml:"tls_timeout"`
	// HeaderTimeout bounds the wait for the answer's head once the request is sent; default 30s.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	// IdleTimeout closes unused connections; default 1s, short so that the upstream seldom closes one first.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// FreshConnections gives every keyed request a connection of its own.
	FreshConnections bool `yaml:"fresh_connections"`
	// HealthCheck asks each url regularly; one that fails gets no requests until it answers again.
	HealthCheck *HealthCheck `yaml:"health_check"`
	// Breaker refuses new keys while the upstream fails; nil means true.
	Breaker *bool `yaml:"breaker"`
	// CA is a PEM file of the authorities to accept instead of the system's.
	CA string `yaml:"ca"`
	// Cert and Key are PEM files: the client certificate shown to the upstream.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ServerName is the name expected in the upstream's certificate; default the url's host.
	ServerName string `yaml:"server_name"`
}

// HealthCheck is one GET of Path per Every; a 2xx within Timeout is healthy.
type HealthCheck struct {
	Path    string        `yaml:"path"`
	Every   time.Duration `yaml:"every"`   // default 5s
	Timeout time.Duration `yaml:"timeout"` // default 2s
}

// Route sends what Match matches to Upstream. With Operation it is guarded.
type Route struct {
	Match    string `yaml:"match"`    // a pattern of net/http's ServeMux
	Upstream string `yaml:"upstream"` // a name in Config.Upstreams

	// Operation makes the route guarded. It is stored as "gateway." + Operation.
	Operation string `yaml:"operation"`
	// Guard is "leased" (default), or "upstream": the upstream guards itself, the gateway checks tenant and key only.
	Guard string `yaml:"guard"`

	// What the engine is told of the operation; defaults are those of idempo.Operation, except MaxRun: 60s.
	OnCrash            string                   `yaml:"on_crash"` // hold (default), probe, rerun
	UpstreamHonoursKey bool                     `yaml:"upstream_honours_key"`
	RepeatHarmless     string                   `yaml:"repeat_harmless"`
	Issued             bool                     `yaml:"issued"`
	IssuedFor          time.Duration            `yaml:"issued_for"`
	Lease              time.Duration            `yaml:"lease"`
	MaxRun             time.Duration            `yaml:"max_run"`
	Retention          time.Duration            `yaml:"retention"`
	Tombstone          time.Duration            `yaml:"tombstone"` // or "forever": idempo.Forever
	Horizons           map[string]time.Duration `yaml:"horizons"`
	MaxResult          int64                    `yaml:"max_result"` // bytes

	// How requests are read and answers kept; defaults are those of idemhttp.Rules.
	Key            KeyRules       `yaml:"key"`
	Methods        []string       `yaml:"methods"` // guarded besides POST and PATCH
	Wait           time.Duration  `yaml:"wait"`
	MaxBody        int64          `yaml:"max_body"`     // bytes
	MaxInflated    int64          `yaml:"max_inflated"` // bytes
	MaxSpool       int64          `yaml:"max_spool"`    // bytes
	Fingerprint    string         `yaml:"fingerprint"`  // canonical (default), raw, none
	Exclude        []string       `yaml:"exclude"`
	Include        []string       `yaml:"include"`
	Headers        []string       `yaml:"headers"`
	PathValues     bool           `yaml:"path_values"`
	Defaults       map[string]any `yaml:"defaults"`
	MismatchDetail string         `yaml:"mismatch_detail"` // pointers (default), none
	MismatchStatus int            `yaml:"mismatch_status"`
	Outcomes       map[int]string `yaml:"outcomes"` // status to keep, keep_failure, release, in_doubt
	Result         string         `yaml:"result"`   // full (default), pointer
	PointerStatus  int            `yaml:"pointer_status"`
	Redact         []string       `yaml:"redact"`
	DenyHeaders    []string       `yaml:"deny_headers"`
	KeepHeaders    []string       `yaml:"keep_headers"`
	Stream         bool           `yaml:"stream"`
	OnStoreDown    string         `yaml:"on_store_down"` // refuse (default), run
	UniqueBy       []string       `yaml:"unique_by"`
	Resource       ResourceRule   `yaml:"resource"`
	AnswerWithin   time.Duration  `yaml:"answer_within"` // then 409 in_progress while the exchange goes on; 0: never
	Issue          string         `yaml:"issue"`         // "POST /path" that issues keys
	Status         string         `yaml:"status"`        // "GET /path" that tells a key's state
	Probe          *Probe         `yaml:"probe"`

	// UpstreamKey is "forward" (default: the value as sent), "derive" or "none"; UpstreamKeyHeader renames its header.
	UpstreamKey       string `yaml:"upstream_key"`
	UpstreamKeyHeader string `yaml:"upstream_key_header"`
}

// KeyRules says where the key is and what it looks like.
type KeyRules struct {
	Required           *bool    `yaml:"required"` // nil means true
	Profile            string   `yaml:"profile"`  // default, strict, uuid, stripe, adyen, square, paypal, aws
	Headers            []string `yaml:"headers"`
	Pointer            string   `yaml:"pointer"`
	From               []string `yaml:"from"`
	Min                int      `yaml:"min"`
	Max                int      `yaml:"max"`
	Pattern            string   `yaml:"pattern"`
	AttemptHeaderAsKey bool     `yaml:"attempt_header_as_key"`
}

// ResourceRule takes the resource pointer from the upstream's JSON answer.
type ResourceRule struct {
	Type string `yaml:"type"`
	ID   string `yaml:"id"` // a JSON pointer into the answer
}

// Probe asks the route's upstream whether an effect happened. Zero durations mean the defaults.
type Probe struct {
	// Request is "GET /path?query" or "HEAD …". {key} {derived_key} {tenant} {operation} {path.NAME} stand for
	// values, percent-escaped in their place; none can change scheme, host or port.
	Request     string        `yaml:"request"`
	Happened    ProbeMatch    `yaml:"happened"`
	NotHappened ProbeMatch    `yaml:"not_happened"`
	Result      *ProbeResult  `yaml:"result"`
	Timeout     time.Duration `yaml:"timeout"`  // default 5s
	Settle      time.Duration `yaml:"settle"`   // default 60s: "not happened" is believed no sooner after the send
	Every       time.Duration `yaml:"every"`    // default 5s, doubling to 1m
	Attempts    int           `yaml:"attempts"` // default 20; then only a person settles it
}

// ProbeMatch fits an answer whose status is listed and whose JSON has the given value at each pointer.
type ProbeMatch struct {
	Status []int          `yaml:"status"`
	JSON   map[string]any `yaml:"json"`
}

// ProbeResult makes the stored answer out of a probe's answer.
type ProbeResult struct {
	Status int    `yaml:"status"`
	Body   string `yaml:"body"` // a JSON pointer into the probe's answer; "" is the whole answer
}
