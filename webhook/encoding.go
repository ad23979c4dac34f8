package webhook

import (
	"encoding/base64"
	"encoding/hex"
)

// maxCodes is how many codes one request may carry; more are refused.
const maxCodes = 16

// code is one decoded code of a request. Digests and ed25519 signatures fit; longer ones (RSA, ECDSA) have their own way.
type code struct {
	b [64]byte
	n int
}

func (c *code) bytes() []byte { return c.b[:c.n] }

// codes are what a request carries. They live on the stack of a verification.
type codes struct {
	list [maxCodes]code
	n    int
}

// add decodes one code of exactly size bytes.
func (c *codes) add(text string, e Encoding, size int) error {
	if c.n == maxCodes {
		return refuse(ReasonMalformedHeader, "more than 16 codes")
	}
	at := &c.list[c.n]
	if text == "" {
		return refuse(ReasonMissingHeader, "the code is empty")
	}
	if !decode(at.b[:size], text, e) {
		return refuse(ReasonMalformedHeader, "the code is not "+string(e)+" of the right length")
	}
	at.n = size
	c.n++
	return nil
}

// decode fills dst exactly from text: hex of either case, padded base64, unpadded base64url; nothing else.
func decode(dst []byte, text string, e Encoding) bool {
	switch e {
	case EncodingHex:
		if len(text) != hex.EncodedLen(len(dst)) {
			return false
		}
		for i := range dst {
			high, low := nibble(text[2*i]), nibble(text[2*i+1])
			if high > 15 || low > 15 {
				return false
			}
			dst[i] = high<<4 | low
		}
		return true
	case EncodingBase64URL:
		return decode64(dst, text, base64.RawURLEncoding)
	default:
		return decode64(dst, text, base64.StdEncoding)
	}
}

func decode64(dst []byte, text string, e *base64.Encoding) bool {
	if len(text) != e.EncodedLen(len(dst)) {
		return false
	}
	var in, out [128]byte
	if len(text) > len(in) {
		return false
	}
	for i := range len(text) {
		if text[i] == '\r' || text[i] == '\n' { // the decoder would skip them
			return false
		}
		in[i] = text[i]
	}
	n, err := e.Strict().Decode(out[:], in[:len(text)])
	return err == nil && n == len(dst) && copy(dst, out[:n]) == n
}

func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// blob decodes a signature of a size that varies: padded base64, at most 1 KiB.
func blob(text string) ([]byte, error) {
	if len(text) > 1400 {
		return nil, refuse(ReasonMalformedHeader, "the signature is too long")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) == 0 || base64.StdEncoding.EncodedLen(len(raw)) != len(text) {
		return nil, refuse(ReasonMalformedHeader, "the signature is not base64")
	}
	return raw, nil
}
