package sqlkit

import (
	"strings"
	"unicode/utf8"
)

// Text returns s as every database takes it: valid UTF-8 without NUL. It is for notes, owners and traces, which come
// from errors and environments; keys and results are never changed.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
