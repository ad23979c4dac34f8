package webhook

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Verifier is a source that was checked, with its secrets read. It is safe for concurrent use.
type Verifier struct {
	source    Source
	profile   Profile
	content   []piece
	label     string
	tolerance time.Duration
	scheme    scheme
	certs     *certificates
	keys      atomic.Pointer[[]*key]
	token     atomic.Pointer[key] // Meta's verify token
	warnings  []string
}

// NewVerifier checks a source and reads its secrets. own are profiles besides the built-in ones; they win.
//
// The error joins every [Fault] that was found. It names source, field and origin of a secret, never its text.
func NewVerifier(s Source, own ...Profile) (*Verifier, error) {
	f := &faults{source: s.Name}
	profile, ok := s.settle(own, f)
	if !ok {
		return nil, f.err()
	}
	v := &Verifier{source: s, profile: profile, tolerance: profile.Time.Tolerance}
	v.scheme, v.label = profile.scheme()
	v.content, _ = pieces(profile.Content)
	if profile.Family == FamilyStandard || profile.SecretForm == FormGitLab {
		v.content = standardContent()
	}
	if s.Tolerance > 0 {
		v.tolerance = s.Tolerance
	}
	if v.tolerance > 0 && profile.Time.Class != TimePerAttempt && v.tolerance < profile.Retries {
		v.warnings = append(v.warnings, fmt.Sprintf("webhooks.sources.%s.tolerance: %s is less than the %s over which %s retries what it signed once; %s is used",
			s.Name, v.tolerance, profile.Retries, s.Provider, profile.Retries))
		v.tolerance = profile.Retries
	}
	if s.MaxBody > 0 {
		v.profile.MaxBody = s.MaxBody
	}
	if s.Retention > 0 {
		v.profile.Retention = s.Retention
	}
	if h := profile.Horizon(); h > v.profile.Retention {
		v.warnings = append(v.warnings, fmt.Sprintf("webhooks.sources.%s.retention: keys are kept %s, and %s can still deliver after %s; then only the tombstone answers",
			s.Name, v.profile.Retention, s.Provider, h))
	}
	v.checkIDs(f)
	keys, token := v.read(f)
	var err error
	if v.certs, err = newCertificates(s.Certificate); err != nil {
		f.add("certificate", "holds no certificate", "give it as PEM")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	v.keys.Store(&keys)
	v.token.Store(token)
	return v, nil
}

// Source gives the configuration back.
func (v *Verifier) Source() Source { return v.source }

// Profile is the profile with what the source replaced.
func (v *Verifier) Profile() Profile { return v.profile }

// Tolerance is the window of a signed time; 0 where there is none.
func (v *Verifier) Tolerance() time.Duration { return v.tolerance }

// Warnings are things that work, and that the operator should know.
func (v *Verifier) Warnings() []string { return slices.Clone(v.warnings) }

// Refresh reads the secrets again. On an error nothing changes: those that were read before go on to verify.
func (v *Verifier) Refresh() error {
	f := &faults{source: v.source.Name}
	keys, token := v.read(f)
	if err := f.err(); err != nil {
		return err
	}
	v.keys.Store(&keys)
	v.token.Store(token)
	return nil
}

// read reads every secret and says of each what is wrong with it.
func (v *Verifier) read(f *faults) ([]*key, *key) {
	var keys []*key
	seen := map[string]bool{}
	if len(v.source.Secrets) == 0 && v.profile.SecretForm != FormNone {
		f.add("secrets", "is empty, so that nothing could be verified", `write secrets: [{id: "1", value: {env: HOOK_SECRET}}]`)
	}
	if len(v.source.Secrets) > 0 && v.profile.SecretForm == FormNone {
		f.add("secrets", v.source.Provider+" has none", "leave it out")
		return nil, nil
	}
	for i, s := range v.source.Secrets {
		field := fmt.Sprintf("secrets[%d] %s", i, s.id)
		if s.id == "" || seen[s.id] {
			f.add(field, "its id is empty or given twice", "name each secret, so that receipts can say which one verified")
		}
		seen[s.id] = true
		k, err := readKey(s, v.profile.SecretForm, v.profile.Alg)
		if err != nil {
			f.add(field, err.Error(), "give it as the provider shows it")
			continue
		}
		if n := len(k.mac); v.profile.Family == FamilyStandard && k.ed == nil && (n < 24 || n > 64) {
			v.warn(fmt.Sprintf("webhooks.sources.%s.%s: %s holds %d bytes, Standard Webhooks wants 24 to 64", v.source.Name, field, s.origin(), n))
		}
		keys = append(keys, k)
	}
	if v.source.VerifyToken == nil {
		return keys, nil
	}
	token, err := readKey(*v.source.VerifyToken, FormText, AlgSHA256)
	if err != nil {
		f.add("verify_token", err.Error(), "give the text that you typed at the provider")
	}
	return keys, token
}

func (v *Verifier) warn(text string) {
	if !slices.Contains(v.warnings, text) && v.keys.Load() == nil { // only while it is made
		v.warnings = append(v.warnings, text)
	}
}

// checkIDs says what follows where a profile names nothing that identifies an event.
func (v *Verifier) checkIDs(f *faults) {
	for _, pointer := range v.profile.pointers() {
		if pointer != "" && pointer[0] != '/' {
			f.add("profile", fmt.Sprintf("%q is no JSON pointer", pointer), "it is empty or begins with /")
		}
	}
	if v.source.MissingID == "content" {
		v.warnings = append(v.warnings, fmt.Sprintf("webhooks.sources.%s.missing_id: events with the same bytes and no id count as one", v.source.Name))
	}
}

// pointers are all JSON pointers of a profile.
func (p *Profile) pointers() []string {
	list := []string{p.Time.JSON}
	add := func(s Shape) {
		var parts []Part
		for _, id := range s.IDs {
			parts = append(parts, id.Parts...)
		}
		for _, t := range s.Tracks {
			parts = append(append(parts, t.Lane...), t.Version)
		}
		for _, part := range append(parts, s.Type...) {
			list = append(list, part.JSON)
		}
		list = append(list, s.Mask...)
	}
	add(p.Shape)
	for _, i := range p.Items {
		list = append(list, i.At)
		add(i.Shape)
	}
	return list
}

// scheme gives the code of a family, and what verdicts call it.
func (p *Profile) scheme() (scheme, string) {
	switch p.Family {
	case FamilyList:
		return listScheme{}, "list " + string(p.Alg)
	case FamilyStandard:
		return standardScheme{}, "standard"
	case FamilyToken:
		return tokenScheme{}, "token"
	case FamilyPubkey:
		return pubkeyScheme{}, "pubkey"
	case FamilyCert:
		return certScheme{}, "cert"
	case FamilyAdyen:
		return adyenScheme{}, "adyen"
	case FamilyTwilio:
		return twilioScheme{}, "twilio " + string(p.Alg)
	case FamilyMailgun:
		return mailgunScheme{}, "mailgun " + string(p.Alg)
	case FamilyHubSpot:
		return hubspotScheme{}, "hubspot"
	case FamilyHook0:
		return hook0Scheme{}, "hook0"
	}
	return hmacScheme{}, "hmac " + string(p.Alg)
}

// IsRefusal tells whether an error of [Verify] or [Accept] is a refusal, with its reason. Any other error means that
// nobody knows yet; the sender should come again.
func IsRefusal(err error) (Reason, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason, true
	}
	return "", false
}
