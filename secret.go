package idempo

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"sync"

	"github.com/idempo/idempo/internal/fingerprint"
)

// Secret is a named key. ID is 1 to 32 of [A-Za-z0-9_-] and is stored beside what the secret made; Value is never
// printed, logged or stored.
type Secret struct {
	ID    string
	Value []byte
}

// String hides the value.
func (Secret) String() string { return "***" }

// GoString hides the value.
func (Secret) GoString() string { return "***" }

// MarshalText hides the value from JSON, YAML and every other encoder.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// checkSecrets refuses what cannot protect anything; texts name the id, never the value.
func checkSecrets(field string, list []Secret, least, most int) (errs []error) {
	seen := map[string]bool{}
	for i, s := range list {
		name := fmt.Sprintf("%s[%d] %q", field, i, s.ID)
		switch {
		case !validSecretID(s.ID):
			errs = append(errs, fmt.Errorf("%s: id must be 1 to 32 of A-Z a-z 0-9 _ -", name))
		case seen[s.ID]:
			errs = append(errs, fmt.Errorf("%s: id stands twice", name))
		case len(s.Value) < least || most > 0 && len(s.Value) > most:
			errs = append(errs, fmt.Errorf("%s: value has %d bytes; it needs %d", name, len(s.Value), least))
		case oneByte(s.Value):
			errs = append(errs, fmt.Errorf("%s: value is one byte repeated; make a random one", name))
		}
		seen[s.ID] = true
	}
	return errs
}

func validSecretID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 32
}

func oneByte(b []byte) bool {
	for _, c := range b {
		if c != b[0] {
			return false
		}
	}
	return true
}

// maxTenantKeys bounds the subkeys kept in memory, whatever tenants callers bring.
const maxTenantKeys = 10_000

// keyring makes digests of keys and requests under subkeys of the digest keys, one set per tenant.
type keyring struct {
	secrets []Secret
	recipes map[string]string // by secret id: the recipe of a fingerprint over Request.Input
	mu      sync.RWMutex
	tenants map[string]*tenantKeys
}

// tenantKeys holds reusable MACs per digest key, in the order of the secrets.
type tenantKeys struct {
	key, request []*sync.Pool
	ref          string
}

func newKeyring(secrets []Secret) *keyring {
	r := &keyring{secrets: secrets, recipes: map[string]string{}, tenants: map[string]*tenantKeys{}}
	for _, s := range secrets {
		r.recipes[s.ID] = recipeInput + s.ID
	}
	return r
}

func (r *keyring) tenant(tenant string) (*tenantKeys, error) {
	r.mu.RLock()
	t := r.tenants[tenant]
	r.mu.RUnlock()
	if t != nil {
		return t, nil
	}
	t = &tenantKeys{}
	for _, s := range r.secrets {
		k, err := macPool(s.Value, "key", tenant)
		q, err2 := macPool(s.Value, "fingerprint", tenant)
		if err = errors.Join(err, err2); err != nil {
			return nil, err
		}
		t.key, t.request = append(t.key, k), append(t.request, q)
	}
	if len(r.secrets) > 0 {
		sub, err := fingerprint.Subkey(r.secrets[0].Value, "tenant", tenant)
		if err != nil {
			return nil, err
		}
		t.ref = reference('t', sub)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tenants) >= maxTenantKeys {
		clear(r.tenants)
	}
	r.tenants[tenant] = t
	return t, nil
}

// tenantRef is how a tenant appears in a log: a digest of it under the first digest key. "" if there is none.
func (r *keyring) tenantRef(tenant string) string {
	t, err := r.tenant(tenant)
	if err != nil {
		return ""
	}
	return t.ref
}

func macPool(secret []byte, purpose, tenant string) (*sync.Pool, error) {
	sub, err := fingerprint.Subkey(secret, purpose, tenant)
	return &sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, sub)} }}, err
}

// mac is a reusable HMAC with room for what it reads and makes.
type mac struct {
	hash.Hash
	in  []byte
	out [digestSize]byte
}

// sum returns the MAC of in, in m.out.
func (m *mac) sum() []byte {
	m.Reset()
	_, _ = m.Write(m.in)
	return m.Sum(m.out[:0])
}

// digests returns the digest of the identity (tenant, operation, principal if set, id) under the first digest key, and
// under the others.
func (r *keyring) digests(k *Key, principal, kind string) (main string, others []string, err error) {
	t, err := r.tenant(k.Tenant)
	if err != nil {
		return "", nil, err
	}
	for i, pool := range t.key {
		d := digestOf(pool, k, principal, kind)
		if i == 0 {
			main = d
		} else {
			others = append(others, d)
		}
	}
	return main, others, nil
}

// digestOf is the digest of one identity under one key.
func digestOf(pool *sync.Pool, k *Key, principal, kind string) string {
	m := pool.Get().(*mac)
	m.in = fingerprint.Append(m.in[:0], k.Tenant, k.Operation)
	if principal != "" {
		m.in = fingerprint.Append(m.in, "principal", principal)
	}
	m.in = fingerprint.Append(m.in, kind, k.ID)
	d := string(m.sum())
	pool.Put(m)
	return d
}

// request returns the pool of fingerprint MACs of a tenant under the digest key id ("" is the first).
func (r *keyring) request(tenant, id string) (*sync.Pool, string, error) {
	t, err := r.tenant(tenant)
	if err != nil {
		return nil, "", err
	}
	for i, s := range r.secrets {
		if id == "" || s.ID == id {
			return t.request[i], s.ID, nil
		}
	}
	return nil, "", &Error{Op: "fingerprint", Code: "record_unreadable",
		Hint: fmt.Sprintf("digest key %q is not configured; add it at the end of the list", id)}
}
