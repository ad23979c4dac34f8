package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo/internal/editdistance"
)

// Retry is how a failed event is tried again.
type Retry struct {
	Attempts   int           // 0 means 12
	First, Max time.Duration // pauses, with full jitter; 0 means 1s and 2h
	MaxAge     time.Duration // after the first failure; 0 means 24h
}

// Source is one configured endpoint: one account at a provider, its secrets, one tenant.
type Source struct {
	Name     string  // 1 to 63 of a-z 0-9 - _
	Provider string  // the name of a profile, built in or one's own
	Profile  Profile // its non-zero fields replace those of the provider's
	Secrets  []Secret
	// PublicURL is the URL that the provider was given, without a query. Needed where the URL is signed.
	PublicURL string
	// VerifyToken is what Meta repeats when it asks whether the endpoint is ours. Without it such a question is refused.
	VerifyToken *Secret
	// Topics are the ARNs from which SNS may send. Needed for aws-sns, since every account of AWS can sign.
	Topics []string
	// MinVersion is the oldest signature version of HubSpot that is accepted: v1, v2 or v3. "" accepts all.
	MinVersion string
	// Tolerance replaces the window of the profile; 0 keeps it. A window below the provider's own retries is raised to them
	// where the time is stamped once for an event, or it is not known.
	Tolerance time.Duration
	// MissingID says what becomes of an event without a usable id: park (default), content or refuse.
	MissingID string
	// MaxItems is how many events one body may hold. 0 means 5000.
	MaxItems int
	// Tenant owns what arrives. "" means default.
	Tenant string
	// Types are the types of events that are run; others are stored and skipped. None: all.
	Types []string
	Order Order
	Retry Retry
	// MaxBody replaces the profile's limit of a body, in bytes; 0 keeps it.
	MaxBody int64
	// RefuseStatus is the answer to a request that is not verified. 0 means 401.
	RefuseStatus int
	// Retention replaces how long the profile keeps keys; tombstones stay ten times as long. 0 keeps it.
	Retention time.Duration
	// BodyRetention is how long the body of a finished event is kept, for operators: 30 days if 0, at most Retention. Those
	// that wait for a person keep theirs.
	BodyRetention time.Duration
	// AllowShortWindow starts although the provider can deliver later than keys and tombstones are kept.
	AllowShortWindow bool
	// Forward sends events to an HTTP target; a source that has one takes no handler.
	Forward *Forward
	// Hold stores events and runs none, until a later configuration says where they go.
	Hold bool
	// Certificate is PEM text that stands in for what a certificate URL would give, and is trusted as if fetched. For tests
	// and the doctor.
	Certificate []byte
}

// Fault is one mistake in a source: where it is, what is wrong and what to do about it.
type Fault struct {
	Source, Field string
	Problem       string // what is wrong
	Fix           string // what to do
}

// Error gives "webhooks.sources.name.field: problem; fix".
func (f *Fault) Error() string {
	return fmt.Sprintf("webhooks.sources.%s.%s: %s; %s", f.Source, f.Field, f.Problem, f.Fix)
}

// faults collects mistakes.
type faults struct {
	source string
	list   []error
}

func (f *faults) add(field, problem, fix string) {
	f.list = append(f.list, &Fault{f.source, field, problem, fix})
}

// word refuses a value that is none of those allowed.
func (f *faults) word(field, value, fix string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		f.add(field, fmt.Sprintf("%q is unknown", value), fix)
	}
}

func (f *faults) err() error { return errors.Join(f.list...) }

var sourceName = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)

// settle finds the profile of a source and checks all that needs no secret.
func (s *Source) settle(own []Profile, f *faults) (Profile, bool) {
	if !sourceName.MatchString(s.Name) {
		f.add("name", fmt.Sprintf("%q is no name of a source", s.Name), "use 1 to 63 of a-z 0-9 - _")
	}
	all := append(slices.Clone(own), Providers()...)
	at := slices.IndexFunc(all, func(p Profile) bool { return p.Name == s.Provider })
	if at < 0 {
		problem := fmt.Sprintf("%q is no provider", s.Provider)
		if near := nearest(s.Provider, all); near != "" {
			problem += ", did you mean " + near
		}
		f.add("provider", problem, "idempo webhooks providers lists them, and webhooks.providers adds one of your own")
		return Profile{}, false
	}
	p := all[at].with(s.Profile).withDefaults()
	p.check(f)
	s.checkURL(&p, f)
	if p.Family == FamilyCert && p.Header == "" && len(s.Topics) == 0 {
		f.add("topics", "is missing, and every account of AWS can sign a message", `write topics: ["arn:aws:sns:us-east-1:123456789012:orders"]`)
	}
	if s.MinVersion != "" && (p.Family != FamilyHubSpot || !slices.Contains([]string{"v1", "v2", "v3"}, s.MinVersion)) {
		f.add("min_version", fmt.Sprintf("%q is no version of %s", s.MinVersion, s.Provider), "only hubspot has versions: v1, v2, v3")
	}
	if s.Tolerance < 0 {
		f.add("tolerance", "is negative", "write a duration such as 5m")
	}
	if !slices.Contains([]string{"", "park", "content", "refuse"}, s.MissingID) {
		f.add("missing_id", fmt.Sprintf("%q is unknown", s.MissingID), "write park, content or refuse")
	}
	if s.MaxItems < 0 {
		f.add("max_items", "is negative", "write a number such as 5000")
	}
	s.checkReceiving(&p, f)
	s.checkForward(f)
	if s.Certificate != nil && p.Family != FamilyCert {
		f.add("certificate", s.Provider+" fetches none", "leave it out")
	}
	return p, true
}

// checkReceiving judges what only a receiver uses.
func (s *Source) checkReceiving(p *Profile, f *faults) {
	s.checkOrder(p, f)
	if s.RefuseStatus != 0 && (s.RefuseStatus < 400 || s.RefuseStatus > 499) {
		f.add("refuse_status", "is no status of a refusal", "write 400 to 499")
	}
	if s.MaxBody < 0 || s.Retention < 0 || s.BodyRetention < 0 || s.Retry.Attempts < 0 || s.Retry.First < 0 || s.Retry.Max < 0 || s.Retry.MaxAge < 0 {
		f.add("max_body, retention, retry", "one of them is negative", "write a size, a duration, a number")
	}
	if keep := cmp.Or(s.Retention, p.Retention); p.Horizon() > 11*keep && !s.AllowShortWindow {
		f.add("retention", fmt.Sprintf("keys and tombstones are kept %s, and %s can still deliver after %s", 11*keep, s.Provider, p.Horizon()),
			"keep them longer, or write allow_short_window: true")
	}
}

// versionSigned tells whether every version that a profile reads is covered by a code.
func (p *Profile) versionSigned() bool {
	shapes := []Shape{p.Shape}
	for _, i := range p.Items {
		shapes = append(shapes, i.Shape)
	}
	versions := 0
	for _, s := range shapes {
		for _, t := range s.Tracks {
			if t.Version == (Part{}) {
				continue
			}
			versions++
			if t.UnsignedOrder || t.Version.Header != "" && !strings.Contains(p.Content, "{h:"+t.Version.Header+"}") && t.Version.Header != p.Time.Header {
				return false
			}
		}
	}
	return versions > 0 && p.BodySigned()
}

// needsURL tells whether the public URL is part of what is signed.
func (p *Profile) needsURL() bool {
	return p.Family == FamilyTwilio || p.Family == FamilyHubSpot || strings.Contains(p.Content, "{url}")
}

func (s *Source) checkURL(p *Profile, f *faults) {
	if s.PublicURL == "" {
		if p.needsURL() {
			f.add("public_url", "is missing, and "+s.Provider+" signs the URL it was given; Host and forwarding headers are the sender's word",
				"write public_url: https://hooks.example.com/hooks/"+s.Name)
		}
		return
	}
	u, err := url.Parse(s.PublicURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(s.PublicURL, "?#") {
		f.add("public_url", "is no URL without a query", "write it as the provider was given it, such as https://hooks.example.com/hooks/"+s.Name)
	}
}

// check judges a profile as data. Nothing it lets through ever leaves a body unchecked unless that is written down.
func (p *Profile) check(f *faults) {
	word := func(field, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			f.add("profile."+field, fmt.Sprintf("%q is unknown", value), "write one of: "+strings.Join(allowed, ", "))
		}
	}
	word("alg", string(p.Alg), string(AlgSHA1), string(AlgSHA256), string(AlgSHA512))
	word("encoding", string(p.Encoding), string(EncodingHex), string(EncodingBase64), string(EncodingBase64URL))
	word("time.unit", string(p.Time.Unit), string(UnitSeconds), string(UnitMilliseconds), string(UnitRFC3339))
	word("time.class", cmp.Or(string(p.Time.Class), "?"), "A", "E", "?")
	word("family", string(p.Family), families()...)
	word("secret", string(p.SecretForm), "text", "base64", "hex", "standard", "gitlab", "ed25519", "spki", "token", "none")
	if p.Family != FamilyHMAC && p.Family != FamilyList {
		return
	}
	if p.SecretForm == FormNone {
		f.add("profile.secret", "a code needs a secret", "write one of: text, base64, hex")
	}
	if !isToken(p.Header) {
		f.add("profile.header", fmt.Sprintf("%q is no name of a header", p.Header), "name the header that holds the code")
	}
	list, err := pieces(p.Content)
	if err != nil {
		f.add("profile.content", err.Error(), "write for example {h:X-Time}.{body}")
		return
	}
	if !contains(list, pieceBody) && !p.BodyUnsigned {
		f.add("profile.content", "has no {body}, so that anyone could change it", "add {body}, or write body_unsigned: true")
	}
	if p.Family == FamilyList && (p.List.Separator == "" || p.List.Tag == "") {
		f.add("profile.list", "needs separator and tag", `write list: {separator: ",", tag: v1}`)
	}
	p.checkTime(list, f)
}

// checkTime refuses a time that no code covers: a window over it would prove nothing.
func (p *Profile) checkTime(list []piece, f *faults) {
	covered := contains(list, pieceTime) || slices.ContainsFunc(list, func(x piece) bool {
		return x.kind == pieceHeader && strings.EqualFold(x.text, p.Time.Header)
	})
	switch {
	case p.Time.Header != "" && p.Time.JSON != "":
		f.add("profile.time", "has two places", "write header or json")
	case p.Time.Header != "" && !covered:
		f.add("profile.time.header", "is not signed: content does not hold it", "write {h:"+p.Time.Header+"} in content")
	case p.Time.JSON != "" && (!contains(list, pieceBody) || !strings.HasPrefix(p.Time.JSON, "/")):
		f.add("profile.time.json", "is no JSON pointer into a signed body", "write for example /sent_at")
	case contains(list, pieceTime) && p.Time.Header == "" && p.List.Time == "":
		f.add("profile.content", "has {ts}, but no time is configured", "write time: {header: X-Time}")
	case p.Time.Tolerance < 0:
		f.add("profile.time.tolerance", "is negative", "write a duration such as 5m")
	case p.Time.Tolerance > 0 && p.Time.Header == "" && p.Time.JSON == "" && p.List.Time == "":
		f.add("profile.time.tolerance", "no time is configured", "write where it is: header or json")
	}
}

func families() []string {
	return []string{string(FamilyHMAC), string(FamilyList), string(FamilyStandard), string(FamilyToken), string(FamilyPubkey), string(FamilyCert),
		string(FamilyAdyen), string(FamilyTwilio), string(FamilyMailgun), string(FamilyHubSpot), string(FamilyHook0)}
}

// nearest is the name of a profile that got may have meant, or "".
func nearest(got string, all []Profile) string {
	best, least := "", max(2, len(got)/3)+1
	for _, p := range all {
		if d := editdistance.Between(got, p.Name); d < least {
			best, least = p.Name, d
		}
	}
	return best
}
