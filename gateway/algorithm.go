package gateway

import (
	"crypto"
	_ "crypto/sha256" // registers SHA-256 for crypto.Hash
	_ "crypto/sha512" // registers SHA-384 and SHA-512
)

// algorithm is one of JOSE's public-key signatures (RFC 7518 3.1, RFC 8037). There is no symmetric one, so that a public
// key can never serve as a shared secret.
type algorithm struct {
	family string // RS, PS, ES or Ed: decides the type of key
	hash   crypto.Hash
	curve  string // of ES: RFC 7518 fixes the curve with the hash
	size   int    // of ES: bytes of one coordinate
}

func algorithmOf(name string) (algorithm, bool) {
	switch name {
	case "RS256", "PS256":
		return algorithm{family: name[:2], hash: crypto.SHA256}, true
	case "RS384", "PS384":
		return algorithm{family: name[:2], hash: crypto.SHA384}, true
	case "RS512", "PS512":
		return algorithm{family: name[:2], hash: crypto.SHA512}, true
	case "ES256":
		return algorithm{family: "ES", hash: crypto.SHA256, curve: "P-256", size: 32}, true
	case "ES384":
		return algorithm{family: "ES", hash: crypto.SHA384, curve: "P-384", size: 48}, true
	case "ES512":
		return algorithm{family: "ES", hash: crypto.SHA512, curve: "P-521", size: 66}, true
	case "EdDSA":
		return algorithm{family: "Ed"}, true
	}
	return algorithm{}, false
}
