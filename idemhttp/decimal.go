package idemhttp

import "bytes"

// decimal is the exact value of a JSON number of any size: digits × 10^exponent, without zeros at either end of the digits. Zero
// has no digits and no sign. The digits are those of whole followed by those of part.
type decimal struct {
	negative    bool
	whole, part []byte
	exponent    int64
}

// parseDecimal reads a valid JSON number whose exponent has at most 9 digits. The result points into token.
func parseDecimal(token []byte) decimal {
	var d decimal
	if token[0] == '-' {
		d.negative = true
		token = token[1:]
	}
	if e := bytes.IndexAny(token, "eE"); e >= 0 {
		d.exponent = parseExponent(token[e+1:])
		token = token[:e]
	}
	d.whole = token
	if before, after, ok := bytes.Cut(token, []byte{'.'}); ok {
		d.whole, d.part = before, after
		d.exponent -= int64(len(d.part))
	}
	d.whole = bytes.TrimLeft(d.whole, "0")
	if len(d.whole) == 0 {
		d.part = bytes.TrimLeft(d.part, "0")
	}
	short := bytes.TrimRight(d.part, "0")
	d.exponent += int64(len(d.part) - len(short))
	d.part = short
	if len(d.part) == 0 {
		short = bytes.TrimRight(d.whole, "0")
		d.exponent += int64(len(d.whole) - len(short))
		d.whole = short
	}
	if len(d.whole)+len(d.part) == 0 {
		return decimal{}
	}
	return d
}

func parseExponent(digits []byte) int64 {
	var n int64
	for _, c := range digits {
		if '0' <= c && c <= '9' {
			n = n*10 + int64(c-'0')
		}
	}
	if digits[0] == '-' {
		return -n
	}
	return n
}

// integer is the value in plain digits. It reports false for a fraction, and for more than limit digits.
func (d decimal) integer(limit int) (text string, whole, fits bool) {
	length := int64(len(d.whole)+len(d.part)) + d.exponent
	switch {
	case len(d.whole)+len(d.part) == 0:
		return "0", true, true
	case d.exponent < 0:
		return "", false, false
	case length > int64(limit):
		return "", true, false
	}
	b := make([]byte, 0, length+1)
	if d.negative {
		b = append(b, '-')
	}
	b = append(append(b, d.whole...), d.part...)
	for range d.exponent {
		b = append(b, '0')
	}
	return string(b), true, true
}
