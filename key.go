package idempo

import (
	"encoding/base32"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Key names one intent: three independent parts that are never joined as text, so no two different keys share a record.
//
// Tenant is the authenticated principal's account, never a credential: 1–255 bytes of UTF-8 without control characters.
// Operation is a stable business name, never a URL: `[A-Za-z0-9][A-Za-z0-9._:-]{0,199}`.
// ID is the caller's idempotency key: 1–2,064 bytes of any value. Between engine and store ID holds the key's
// 32-byte digest instead (see Store).
//
// A Key prints and logs as its operation only.
type Key struct{ Tenant, Operation, ID string }

// String returns the operation; tenant and ID are never printed.
func (k Key) String() string { return k.Operation }

// GoString is String: the verb %#v must not show more than %v.
func (k Key) GoString() string { return k.Operation }

// LogValue is String for log/slog.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.Operation) }

const (
	maxTenant    = 255
	maxOperation = 200
	maxID        = 2064
	digestSize   = 32
)

// check returns a reason to refuse k, naming field and rule, or "".
func (k Key) check() string {
	switch {
	case k.Tenant == "" || len(k.Tenant) > maxTenant:
		return "tenant: 1 to 255 bytes"
	case !utf8.ValidString(k.Tenant) || strings.ContainsFunc(k.Tenant, control):
		return "tenant: valid UTF-8 without control characters"
	case !validOperation(k.Operation):
		return "operation: [A-Za-z0-9][A-Za-z0-9._:-]{0,199}"
	case k.ID == "" || len(k.ID) > maxID:
		return "id: 1 to 2064 bytes"
	}
	return ""
}

func control(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f }

func validOperation(s string) bool {
	if s == "" || len(s) > maxOperation {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// Ref returns the reference of a key whose ID is a digest, as stores and records hold it: `k_` and 26 characters of
// lower-case RFC 4648 base32 over the digest's first 16 bytes. It is the only form of a key in logs, lists, problems
// and links. Ref of a key that holds no digest is "".
func (k Key) Ref() string {
	if len(k.ID) != digestSize {
		return ""
	}
	return reference('k', []byte(k.ID))
}

// reference shows the first 16 bytes of a digest.
func reference(kind byte, digest []byte) string {
	var b [28]byte
	b[0], b[1] = kind, '_'
	base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding).Encode(b[2:], digest[:16])
	return string(b[:])
}
