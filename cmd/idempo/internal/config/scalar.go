package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const durationUnits = "ms s m h d w"
const sizeUnits = "B kB KiB MB MiB GB GiB TB TiB"

// forever is how "for ever" is kept in a value until it is decoded.
const forever = time.Duration(math.MaxInt64)

var (
	errNoDuration = errors.New("not a duration: write whole numbers with a unit (" + durationUnits + "), as in 30s or 1h30m")
	errNoSize     = errors.New("not a size: write a whole number with a unit (" + sizeUnits + "), as in 64KiB")
)

// ParseDuration reads whole numbers with the units ms s m h d w, also joined from large to small: 1h30m.
// Anything else, a bare number and 1.5h too, is an error that names the units. A day is 24 hours.
func ParseDuration(s string) (time.Duration, error) {
	var total, last time.Duration
	rest := s
	for rest != "" {
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		u := n
		for u < len(rest) && rest[u] >= 'a' && rest[u] <= 'z' {
			u++
		}
		if n == 0 || u == n {
			return 0, errNoDuration
		}
		unit, ok := durationUnit(rest[n:u])
		if !ok || (last != 0 && unit >= last) {
			return 0, errNoDuration
		}
		count, err := strconv.ParseInt(rest[:n], 10, 64)
		if err != nil || count > int64((math.MaxInt64-total)/unit) {
			return 0, errors.New("duration too long: at most 292 years")
		}
		total += time.Duration(count) * unit
		last, rest = unit, rest[u:]
	}
	if last == 0 {
		return 0, errNoDuration
	}
	return total, nil
}

func durationUnit(s string) (time.Duration, bool) {
	switch s {
	case "ms":
		return time.Millisecond, true
	case "s":
		return time.Second, true
	case "m":
		return time.Minute, true
	case "h":
		return time.Hour, true
	case "d":
		return 24 * time.Hour, true
	case "w":
		return 7 * 24 * time.Hour, true
	}
	return 0, false
}

// FormatDuration writes d as ParseDuration reads it, in the fewest units; parts below a millisecond are dropped.
func FormatDuration(d time.Duration) string {
	if d == forever {
		return "forever"
	}
	if d < time.Millisecond {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if n := d / u.d; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d %= u.d
		}
	}
	return b.String()
}

// ParseSize reads a whole number with a unit: B, kB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024).
func ParseSize(s string) (int64, error) {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	unit, ok := sizeUnit(s[n:])
	if n == 0 || !ok {
		return 0, errNoSize
	}
	count, err := strconv.ParseInt(s[:n], 10, 64)
	if err != nil || count > math.MaxInt64/unit {
		return 0, errors.New("size too large")
	}
	return count * unit, nil
}

func sizeUnit(s string) (int64, bool) {
	switch s {
	case "B":
		return 1, true
	case "kB":
		return 1e3, true
	case "MB":
		return 1e6, true
	case "GB":
		return 1e9, true
	case "TB":
		return 1e12, true
	case "KiB":
		return 1 << 10, true
	case "MiB":
		return 1 << 20, true
	case "GiB":
		return 1 << 30, true
	case "TiB":
		return 1 << 40, true
	}
	return 0, false
}

// parseWhole reads a decimal whole number: no sign but '-', no leading zero, no underscore, no other base.
func parseWhole(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("number out of range")
	}
	if err != nil || strconv.FormatInt(n, 10) != s {
		return 0, errors.New("not a whole number: write digits only, as in 3")
	}
	return n, nil
}

// read gives a scalar of the field's kind its meaning and checks it against the field's limits.
// The errors speak of the rule, never of the value, which may be a secret.
func (f *field) read(s string) (num int64, err error) {
	switch f.kind {
	case whole:
		num, err = parseWhole(s)
	case truth:
		switch s {
		case "true":
			num = 1
		case "false":
		default:
			err = errors.New("not a boolean: write true or false")
		}
	case duration:
		if f.forever && s == "forever" {
			return int64(forever), nil
		}
		var d time.Duration
		if d, err = ParseDuration(s); err != nil && f.forever {
			err = fmt.Errorf("%w, or forever", err)
		}
		num = int64(d)
	case size:
		num, err = ParseSize(s)
	}
	if err != nil {
		return 0, err
	}
	if err := f.inRange(num); err != nil {
		return 0, err
	}
	if f.check != nil {
		return num, f.check(s)
	}
	return num, nil
}

func (f *field) inRange(num int64) error {
	limit := func(s string) int64 {
		g := field{kind: f.kind}
		n, _ := g.read(s) // the schema's own limits; a test reads them all
		return n
	}
	if f.kind != whole && f.kind != duration && f.kind != size {
		return nil
	}
	switch low, high := f.min != "" && num < limit(f.min), f.max != "" && num > limit(f.max); {
	case (low || high) && f.min != "" && f.max != "":
		return fmt.Errorf("out of range: from %s to %s", f.min, f.max)
	case low:
		return fmt.Errorf("out of range: at least %s", f.min)
	case high:
		return fmt.Errorf("out of range: at most %s", f.max)
	}
	return nil
}
