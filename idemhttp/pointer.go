package idemhttp

import (
	"fmt"
	"strconv"
	"strings"
)

// parsePointer splits an RFC 6901 pointer into its unescaped tokens. The pointer to the whole document, "", is refused: a list
// that names it says nothing.
func parsePointer(text string) ([]string, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf("%q is no JSON pointer; begin it with \"/\", as in \"/order/id\"", text)
	}
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		plain, ok := unescapeToken(t)
		if !ok {
			return nil, fmt.Errorf("%q is no JSON pointer; write \"~\" as \"~0\" and \"/\" as \"~1\"", text)
		}
		tokens[i] = plain
	}
	return tokens, nil
}

func unescapeToken(t string) (string, bool) {
	if strings.IndexByte(t, '~') < 0 {
		return t, true
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] != '~' {
			b.WriteByte(t[i])
			continue
		}
		i++
		switch {
		case i < len(t) && t[i] == '0':
			b.WriteByte('~')
		case i < len(t) && t[i] == '1':
			b.WriteByte('/')
		default:
			return "", false
		}
	}
	return b.String(), true
}

// appendToken appends "/" and token, escaped, to a pointer.
func appendToken(pointer []byte, token []byte) []byte {
	pointer = append(pointer, '/')
	for _, c := range token {
		switch c {
		case '~':
			pointer = append(pointer, "~0"...)
		case '/':
			pointer = append(pointer, "~1"...)
		default:
			pointer = append(pointer, c)
		}
	}
	return pointer
}

// arrayIndex is the array index that a token means, or -1: no sign, no leading zero.
func arrayIndex(token string) int {
	if token == "" || len(token) > 9 || token[0] == '0' && len(token) > 1 {
		return -1
	}
	for i := range len(token) {
		if token[i] < '0' || token[i] > '9' {
			return -1
		}
	}
	n, err := strconv.Atoi(token)
	if err != nil {
		return -1
	}
	return n
}
