package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo/internal/safedial"
)

const (
	maxToken  = 16 << 10
	jwtLeeway = 60 * time.Second
)

// errToken is every reason not to believe a token. The caller learns no more than 401.
var errToken = errors.New("token refused")

// keySource gives the public keys that may have signed a token with this key id; "" is a token without one.
type keySource interface {
	keys(ctx context.Context, kid string) ([]publicKey, error)
}

// jwtTenant verifies bearer tokens (RFC 7515, 7519) and takes the tenant from a claim.
type jwtTenant struct {
	config    JWT
	principal string
	source    keySource
}

func newJWTTenant(c JWT, principal string, d safedial.Dialer) (*jwtTenant, error) {
	t := &jwtTenant{config: c, principal: principal}
	if c.JWKSURL != "" {
		t.source = newRemoteKeys(c.JWKSURL, d)
		return t, nil
	}
	local, err := newLocalKeys(c.JWKSFile)
	if err != nil {
		return nil, err
	}
	t.source = local
	return t, nil
}

func (t *jwtTenant) identify(r *http.Request) (caller, error) {
	token, err := bearer(r.Header)
	if err != nil {
		return caller{}, errNoTenant
	}
	claims, err := t.verify(r.Context(), token, time.Now())
	if errors.Is(err, errToken) {
		return caller{}, errNoTenant
	}
	if err != nil {
		return caller{}, err
	}
	var c caller
	if c.tenant, err = textClaim(claims, t.config.Claim); err != nil {
		return caller{}, errNoTenant
	}
	if t.principal != "" {
		if c.principal, err = textClaim(claims, t.principal); err != nil {
			return caller{}, errNoTenant
		}
	}
	return c, nil
}

// bearer takes the token of exactly one Authorization header.
func bearer(h http.Header) (string, error) {
	values := h["Authorization"]
	if len(values) != 1 || len(values[0]) > maxToken {
		return "", errToken
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", errToken
	}
	return strings.Trim(token, " "), nil
}

// verify gives the claims of a token that is signed by a known key with an accepted algorithm, and valid now.
func (t *jwtTenant) verify(ctx context.Context, token string, now time.Time) (map[string]json.RawMessage, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errToken
	}
	var head struct {
		Alg  string          `json:"alg"`
		Kid  string          `json:"kid"`
		Crit json.RawMessage `json:"crit"`
		Zip  json.RawMessage `json:"zip"`
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil || json.Unmarshal(raw, &head) != nil || head.Crit != nil || head.Zip != nil {
		return nil, errToken
	}
	alg, ok := algorithmOf(head.Alg)
	if !ok || !slices.Contains(t.config.Algorithms, head.Alg) {
		return nil, errToken
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		return nil, errToken
	}
	keys, err := t.source.keys(ctx, head.Kid)
	if err != nil {
		return nil, err
	}
	signed := []byte(token[:len(parts[0])+1+len(parts[1])])
	if !slices.ContainsFunc(keys, func(k publicKey) bool { return k.verify(alg, head.Alg, signed, signature) }) {
		return nil, errToken
	}
	raw, err = base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if err != nil {
		return nil, errToken
	}
	var claims map[string]json.RawMessage
	if json.Unmarshal(raw, &claims) != nil || !t.current(claims, now) {
		return nil, errToken
	}
	return claims, nil
}

// current checks exp, nbf, aud and iss.
func (t *jwtTenant) current(claims map[string]json.RawMessage, now time.Time) bool {
	exp, ok := timeClaim(claims, "exp")
	if !ok || !now.Before(exp.Add(jwtLeeway)) {
		return false
	}
	if _, given := claims["nbf"]; given {
		nbf, ok := timeClaim(claims, "nbf")
		if !ok || now.Add(jwtLeeway).Before(nbf) {
			return false
		}
	}
	if t.config.Issuer != "" {
		if iss, err := textClaim(claims, "iss"); err != nil || iss != t.config.Issuer {
			return false
		}
	}
	return t.config.Audience == "" || hasAudience(claims["aud"], t.config.Audience)
}

func hasAudience(raw json.RawMessage, want string) bool {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one == want
	}
	var many []string
	return json.Unmarshal(raw, &many) == nil && slices.Contains(many, want)
}

// textClaim is a claim that is a text and not empty.
func textClaim(claims map[string]json.RawMessage, name string) (string, error) {
	raw := bytes.TrimSpace(claims[name])
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil || s == "" {
		return "", errToken
	}
	return s, nil
}

// timeClaim is a NumericDate: seconds, fractions allowed, of a range that a time can hold.
func timeClaim(claims map[string]json.RawMessage, name string) (time.Time, bool) {
	var f float64
	raw := bytes.TrimSpace(claims[name])
	if len(raw) == 0 || raw[0] == 'n' || json.Unmarshal(raw, &f) != nil || f < 0 || f > 1<<50 {
		return time.Time{}, false
	}
	return time.Unix(int64(f), 0), true
}
