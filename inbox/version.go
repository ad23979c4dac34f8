package inbox

import (
	"strings"
	"time"
)

// version is a lane's version in canonical form: an integer of any length without leading zeros, or an instant in UTC
// with as many digits of the second as it was given. Equal versions have equal text.
type version string

// parseVersion reads an integer of any length; instants says that an RFC 3339 instant will do, too.
func parseVersion(s string, instants bool) (version, bool) {
	if v, ok := integer(s); ok {
		return v, true
	}
	if !instants {
		return "", false
	}
	return instant(s)
}

func integer(s string) (version, bool) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" {
		return "", false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return "", false
		}
	}
	digits = strings.TrimLeft(digits, "0")
	switch {
	case digits == "":
		return "0", true
	case s[0] == '-':
		return version("-" + digits), true
	}
	return version(digits), true
}

// instant keeps every digit of the second: time.Time has nine.
func instant(s string) (version, bool) {
	whole, fraction := s, ""
	if head, tail, ok := strings.Cut(s, "."); ok {
		end := strings.IndexFunc(tail, func(r rune) bool { return r < '0' || r > '9' })
		if end <= 0 {
			return "", false
		}
		whole, fraction = head+tail[end:], strings.TrimRight(tail[:end], "0")
	}
	t, err := time.Parse(time.RFC3339, whole)
	if err != nil {
		return "", false
	}
	u := t.UTC()
	if u.Year() < 0 || u.Year() > 9999 {
		return "", false
	}
	text := u.Format("2006-01-02T15:04:05")
	if fraction != "" {
		text += "." + fraction
	}
	return version(text + "Z"), true
}

func (v version) instant() bool { return strings.HasSuffix(string(v), "Z") }

// compare orders two versions; false: an integer and an instant do not compare.
func (v version) compare(o version) (int, bool) {
	if v.instant() != o.instant() {
		return 0, false
	}
	if v.instant() { // without the Z a longer fraction of the same second sorts behind a shorter one
		return strings.Compare(strings.TrimSuffix(string(v), "Z"), strings.TrimSuffix(string(o), "Z")), true
	}
	a, minusA := strings.CutPrefix(string(v), "-")
	b, minusB := strings.CutPrefix(string(o), "-")
	switch {
	case minusA && minusB:
		return magnitude(b, a), true
	case minusA:
		return -1, true
	case minusB:
		return 1, true
	}
	return magnitude(a, b), true
}

func magnitude(a, b string) int {
	switch {
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return 1
	}
	return strings.Compare(a, b)
}

// next is the integer after v; "" has 1 after it, as a lane that is new.
func (v version) next() version {
	switch {
	case v == "":
		return "1"
	case v[0] == '-':
		return v.shrink()
	}
	return grow(string(v))
}

// before is the integer before v.
func (v version) before() version {
	switch {
	case v == "0":
		return "-1"
	case v[0] == '-':
		return "-" + grow(string(v[1:]))
	}
	return less(string(v))
}

// shrink is next of a negative integer.
func (v version) shrink() version {
	if u := less(string(v[1:])); u != "0" {
		return "-" + u
	}
	return "0"
}

// grow adds one to digits.
func grow(digits string) version {
	d := []byte(digits)
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] != '9' {
			d[i]++
			return version(d)
		}
		d[i] = '0'
	}
	return version("1" + string(d))
}

// less takes one from digits, which are above zero.
func less(digits string) version {
	d := []byte(digits)
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] != '0' {
			d[i]--
			break
		}
		d[i] = '9'
	}
	v, _ := integer(string(d))
	return v
}
