package idemhttp

import (
	"strconv"
	"strings"
)

const (
	keyMissing   = "key_missing"
	keyEmpty     = "key_empty"
	keyMalformed = "key_malformed"
	keyLength    = "key_length"
	keyMultiple  = "key_multiple"

	defaultMaxKey = 255
	highestMaxKey = 1024
)

// ParseKey reads the value of an Idempotency-Key header as the default profile does and returns the key.
//
// Outer spaces and tabs are trimmed. A value that begins with a quote is an RFC 9651 String, whose well-formed parameters
// are ignored; any other value is the key as it stands, if all its bytes are 0x21–0x7E without quote, comma, semicolon and
// backslash. Nothing is folded, decoded or typed: 1, true and @1659578233 are three keys of one to eleven bytes.
//
// The error says, without repeating the value, that the key is empty, malformed, not between 1 and 255 bytes long, or that
// the value holds several.
func ParseKey(value string) (string, error) {
	key, err := readKey(value, false)
	if err != nil {
		return "", err
	}
	if err := checkLength(key, 1, defaultMaxKey); err != nil {
		return "", err
	}
	return key, nil
}

// FormatKey writes key as the value of an Idempotency-Key header: an RFC 9651 String, which every profile reads.
//
// ParseKey(FormatKey(key)) is key for every key of 1 to 255 bytes 0x20–0x7E that is not blank. Of any other string FormatKey
// makes a value that ParseKey refuses.
func FormatKey(key string) string {
	var b strings.Builder
	b.Grow(len(key) + 2)
	b.WriteByte('"')
	for i := range len(key) {
		if key[i] == '"' || key[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(key[i])
	}
	b.WriteByte('"')
	return b.String()
}

// readKey reads one header line. strict refuses every bare value, in the same words whatever it begins with.
func readKey(value string, strict bool) (string, error) {
	v := strings.Trim(value, " \t")
	if v == "" {
		return "", refuse(keyEmpty, "The idempotency key is empty.")
	}
	if v[0] != '"' && strict {
		return "", refuse(keyMalformed, "The idempotency key must be a quoted string.")
	}
	if !printable(v) {
		return "", refuse(keyMalformed, "The idempotency key holds a byte outside printable ASCII.")
	}
	if commaOutsideQuotes(v) {
		return "", refuse(keyMultiple, "The header holds more than one idempotency key.")
	}
	if v[0] != '"' {
		if strings.ContainsAny(v, ` ";\`) {
			return "", refuse(keyMalformed, "An idempotency key with a space, quote, semicolon or backslash must be quoted.")
		}
		return v, nil
	}
	key, rest, ok := readString(v)
	if !ok {
		return "", refuse(keyMalformed, "The quoted idempotency key does not end, or holds an unknown escape.")
	}
	if !wellFormedParameters(rest) {
		return "", refuse(keyMalformed, "Something other than well-formed parameters follows the quoted idempotency key.")
	}
	if blank(key) {
		return "", refuse(keyEmpty, "The idempotency key is empty.")
	}
	return key, nil
}

// readString reads the RFC 9651 String that v begins with. Only \" and \\ are escapes.
func readString(v string) (s, rest string, ok bool) {
	var b []byte
	start := 1 // of what is not in b yet; beyond 1 once there was an escape
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '"':
			if start == 1 {
				return v[1:i], v[i+1:], true
			}
			return string(append(b, v[start:i]...)), v[i+1:], true
		case '\\':
			if i+1 == len(v) || v[i+1] != '"' && v[i+1] != '\\' {
				return "", "", false
			}
			b = append(b, v[start:i]...)
			i++
			start = i
		}
	}
	return "", "", false
}

// wellFormedParameters reports whether rest is nothing, or parameters as RFC 9651, 3.1.2 has them, with any run of visible
// characters for a value.
func wellFormedParameters(rest string) bool {
	for rest != "" {
		if rest[0] != ';' {
			return false
		}
		rest = strings.TrimLeft(rest[1:], " ")
		n := 0
		for n < len(rest) && parameterNameByte(rest[n], n == 0) {
			n++
		}
		if n == 0 {
			return false
		}
		rest = rest[n:]
		if rest == "" || rest[0] != '=' {
			continue
		}
		rest = rest[1:]
		if rest != "" && rest[0] == '"' {
			var ok bool
			if _, rest, ok = readString(rest); !ok {
				return false
			}
			continue
		}
		n = strings.IndexAny(rest+";", "\",; ")
		if n == 0 {
			return false
		}
		rest = rest[n:]
	}
	return true
}

func parameterNameByte(c byte, first bool) bool {
	switch {
	case 'a' <= c && c <= 'z', c == '*':
		return true
	case '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		return !first
	}
	return false
}

// commaOutsideQuotes tells a list from a key: intermediaries may join two field lines with a comma.
func commaOutsideQuotes(v string) bool {
	if strings.IndexByte(v, ',') < 0 {
		return false
	}
	quoted := false
	for i := 0; i < len(v); i++ {
		switch {
		case v[i] == '"':
			quoted = !quoted
		case quoted && v[i] == '\\':
			i++
		case !quoted && v[i] == ',':
			return true
		}
	}
	return false
}

// checkLiteral holds a key taken from a body to the bytes that a quoted key may have.
func checkLiteral(key string) error {
	if !printable(key) {
		return refuse(keyMalformed, "The idempotency key holds a byte outside printable ASCII.")
	}
	if blank(key) {
		return refuse(keyEmpty, "The idempotency key is empty.")
	}
	return nil
}

func checkLength(key string, low, high int) error {
	if len(key) < low || len(key) > high {
		return refuse(keyLength, "The idempotency key must have "+strconv.Itoa(low)+" to "+strconv.Itoa(high)+" bytes.")
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7E {
			return false
		}
	}
	return true
}

func blank(s string) bool { return strings.Trim(s, " ") == "" }

// uuidForm reports whether s is 8-4-4-4-12 hex digits, in either case, of any version.
func uuidForm(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
		default:
			if !hexDigit(s[i]) {
				return false
			}
		}
	}
	return true
}

func hexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
