package gateway

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// publicKey is one usable key of a key set (RFC 7517).
type publicKey struct {
	kid string
	alg string // the only algorithm it is for, or ""
	key crypto.PublicKey
}

// parseKeySet reads a key set and leaves out what is not a public signature key of a kind we verify: a set may hold
// others beside. A set without any usable key is an error.
func parseKeySet(raw []byte) ([]publicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, errors.New("key set: not a JSON object with keys")
	}
	var keys []publicKey
	for _, k := range set.Keys {
		if p, err := parseKey(k); err == nil {
			keys = append(keys, p)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("key set: no usable public key")
	}
	return keys, nil
}

func parseKey(raw []byte) (publicKey, error) {
	var k struct {
		Kty, Kid, Use, Alg, Crv, N, E, X, Y string
		KeyOps                              []string `json:"key_ops"`
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		return publicKey{}, err
	}
	if k.Use != "" && k.Use != "sig" {
		return publicKey{}, errors.New("not for signatures")
	}
	p := publicKey{kid: k.Kid, alg: k.Alg}
	n, e, x, y := field(k.N), field(k.E), field(k.X), field(k.Y)
	switch {
	case k.Kty == "RSA":
		exponent := new(big.Int).SetBytes(e)
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}
		if key.N.BitLen() < 2048 || key.N.BitLen() > 16384 || !exponent.IsInt64() || key.E < 3 || key.E >= 1<<31 || key.E%2 == 0 {
			return publicKey{}, errors.New("RSA key out of bounds")
		}
		p.key = key
	case k.Kty == "EC":
		var curve elliptic.Curve
		switch k.Crv {
		case "P-256":
			curve = elliptic.P256()
		case "P-384":
			curve = elliptic.P384()
		case "P-521":
			curve = elliptic.P521()
		default:
			return publicKey{}, fmt.Errorf("curve %q", k.Crv)
		}
		size := (curve.Params().BitSize + 7) / 8
		if len(x) != size || len(y) != size {
			return publicKey{}, errors.New("EC point of the wrong size")
		}
		key, err := ecdsa.ParseUncompressedPublicKey(curve, append(append([]byte{4}, x...), y...))
		if err != nil {
			return publicKey{}, err
		}
		p.key = key
	case k.Kty == "OKP" && k.Crv == "Ed25519" && len(x) == ed25519.PublicKeySize:
		p.key = ed25519.PublicKey(x)
	default:
		return publicKey{}, fmt.Errorf("key type %q", k.Kty)
	}
	return p, nil
}

func field(s string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}

// verify tells whether sig is this key's signature of msg with alg, which is called name.
func (p publicKey) verify(alg algorithm, name string, msg, sig []byte) bool {
	if p.alg != "" && p.alg != name {
		return false
	}
	if alg.family == "Ed" {
		key, ok := p.key.(ed25519.PublicKey)
		return ok && ed25519.Verify(key, msg, sig)
	}
	h := alg.hash.New()
	h.Write(msg)
	digest := h.Sum(nil)
	switch key := p.key.(type) {
	case *rsa.PublicKey:
		switch alg.family {
		case "RS":
			return rsa.VerifyPKCS1v15(key, alg.hash, digest, sig) == nil
		case "PS": // RFC 7518 3.5: the salt is as long as the hash
			return rsa.VerifyPSS(key, alg.hash, digest, sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		}
	case *ecdsa.PublicKey:
		if alg.family != "ES" || key.Curve.Params().Name != alg.curve || len(sig) != 2*alg.size {
			return false
		}
		r, s := new(big.Int).SetBytes(sig[:alg.size]), new(big.Int).SetBytes(sig[alg.size:])
		return ecdsa.Verify(key, digest, r, s)
	}
	return false
}
