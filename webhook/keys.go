package webhook

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"regexp"
	"strings"
	"sync"
	"time"
)

// key is a secret that was read. Which of its fields are set depends on the form.
type key struct {
	id    string
	until time.Time
	mac   []byte            // key of an HMAC
	text  string            // the text itself, where it is compared or is part of what is signed
	ed    ed25519.PublicKey // public keys
	ec    *ecdsa.PublicKey
	macs  *sync.Pool // of *macState
}

// ended tells whether the key no longer verifies anything.
func (k *key) ended(now time.Time) bool { return !k.until.IsZero() && !now.Before(k.until) }

// macState is an HMAC with room for what is written to it; kept, since its key is set up once.
type macState struct {
	h       hash.Hash
	sum     []byte
	scratch []byte
}

func newHash(a Alg) func() hash.Hash {
	switch a {
	case AlgSHA1:
		return sha1.New
	case AlgSHA512:
		return sha512.New
	}
	return sha256.New
}

func (a Alg) size() int {
	switch a {
	case AlgSHA1:
		return sha1.Size
	case AlgSHA512:
		return sha512.Size
	}
	return sha256.Size
}

// readKey reads a secret and makes a key of it. Errors name the origin and the expected form, never the value.
func readKey(s Secret, form Form, alg Alg) (*key, error) {
	text, err := s.read()
	if err != nil {
		return nil, err
	}
	return makeKey(s, text, form, alg)
}

func makeKey(s Secret, text string, form Form, alg Alg) (*key, error) {
	if strings.HasPrefix(text, "v1,") || strings.HasPrefix(text, "v1a,") {
		return nil, errors.New(s.origin() + " looks like a signature entry: drop the text before whsec_")
	}
	k := &key{id: s.id, until: s.until, text: text}
	var err error
	switch form {
	case FormBase64:
		k.mac, err = base64Any(text)
	case FormHex:
		k.mac, err = hex.DecodeString(text)
	case FormStandard:
		if public, ok := strings.CutPrefix(text, "whpk_"); ok {
			k.ed, err = base64Any(public)
			if err == nil && len(k.ed) != ed25519.PublicKeySize {
				err = errForm
			}
		} else {
			k.mac, err = base64Any(strings.TrimPrefix(text, "whsec_"))
		}
	case FormGitLab:
		if token, ok := strings.CutPrefix(text, "whsec_"); ok {
			k.text = ""
			k.mac, err = base64Any(token)
		}
	case FormToken:
		if !urlToken.MatchString(text) {
			err = errForm
		}
	case FormEd25519:
		var raw []byte
		if raw, err = hex.DecodeString(text); err == nil && len(raw) != ed25519.PublicKeySize {
			err = errForm
		}
		k.ed = raw
	case FormSPKI:
		k.ec, err = parseSPKI(text)
	default:
		k.mac = []byte(text)
	}
	if err != nil || k.mac != nil && len(k.mac) == 0 {
		return nil, errors.New(s.origin() + " does not decode; it should be " + form.words())
	}
	if k.mac != nil {
		secret, make := k.mac, newHash(alg)
		k.macs = &sync.Pool{New: func() any { return &macState{h: hmac.New(make, secret)} }}
	}
	return k, nil
}

var urlToken = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

var errForm = errors.New("another form is expected")

// words says what a secret of the form looks like.
func (f Form) words() string {
	switch f {
	case FormBase64:
		return "base64"
	case FormHex:
		return "hex digits"
	case FormStandard:
		return "whsec_ and base64, or whpk_ and the base64 of a 32-byte ed25519 public key"
	case FormGitLab:
		return "the secret token, or the signing token that begins with whsec_"
	case FormEd25519:
		return "the 64 hex digits of an ed25519 public key"
	case FormToken:
		return "1 to 256 of A-Z a-z 0-9 _ -"
	case FormSPKI:
		return "the base64 of an ECDSA P-256 public key"
	}
	return "the text that the provider shows"
}

// base64Any takes base64 with or without padding.
func base64Any(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, errForm
	}
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
}

func parseSPKI(text string) (*ecdsa.PublicKey, error) {
	raw, err := base64Any(text)
	if err != nil {
		return nil, err
	}
	pub, err := x509.ParsePKIXPublicKey(raw)
	if err != nil {
		return nil, err
	}
	ec, ok := pub.(*ecdsa.PublicKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, errForm
	}
	return ec, nil
}

func (m *macState) write(s *signed) {
	m.h.Reset()
	m.scratch = m.scratch[:0]
	for i, p := range s.pieces {
		if p.kind != pieceBody {
			m.scratch = append(m.scratch, s.values[i]...)
			continue
		}
		m.h.Write(m.scratch)
		m.scratch = m.scratch[:0]
		m.h.Write(s.body)
	}
	m.h.Write(m.scratch)
	m.sum = m.h.Sum(m.sum[:0])
}

// matches tells whether the HMAC of the text is one of the codes. Every code is compared.
func (k *key) matches(s *signed, c *codes) bool {
	m := k.macs.Get().(*macState)
	defer k.macs.Put(m)
	m.write(s)
	found := false
	for i := range c.n {
		found = hmac.Equal(m.sum, c.list[i].bytes()) || found
	}
	return found
}
