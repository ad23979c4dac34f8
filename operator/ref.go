package operator

import (
	"encoding/base32"
	"errors"
	"strings"
)

// refBytes is how much of a digest a reference shows.
const refBytes = 16

// ParseRef returns the first 16 bytes of the digest that a key reference stands for: k_ and 26 characters of lower-case
// base32. Upper case is accepted, since references are typed by people.
func ParseRef(ref string) ([]byte, error) {
	text, ok := strings.CutPrefix(strings.ToLower(ref), "k_")
	if !ok || len(text) != 26 {
		return nil, errors.New("not a key reference: k_ and 26 characters")
	}
	b, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(text))
	if err != nil || len(b) != refBytes {
		return nil, errors.New("not a key reference: k_ and 26 characters a-z, 2-7")
	}
	return b, nil
}
