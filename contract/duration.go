package contract

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// forever stands for a time without end, where an ISO 8601 duration would.
const forever = "forever"

const (
	day  = 24 * time.Hour
	week = 7 * day
)

var isoDuration = regexp.MustCompile(`^P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d+)?)S)?)?$`)

// ParseDuration reads an ISO 8601 duration such as PT24H or P30D, or the word forever, which is [idempo.Forever]. Years count 365
// days and months 30, since a promise of time needs one length. Anything else, and more than 290 years, is an error.
func ParseDuration(s string) (time.Duration, error) {
	if s == forever {
		return idempo.Forever, nil
	}
	m := isoDuration.FindStringSubmatch(s)
	if m == nil || s == "P" || strings.HasSuffix(s, "T") {
		return 0, fmt.Errorf("%s is no ISO 8601 duration: write PT24H, P30D or forever", quote(s))
	}
	var d time.Duration
	for i, unit := range []time.Duration{365 * day, 30 * day, week, day, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		f, err := strconv.ParseFloat(strings.Replace(m[i+1], ",", ".", 1), 64)
		if err != nil || f*float64(unit)+float64(d) > float64(290*365*day) {
			return 0, fmt.Errorf("%s is too long: at most 290 years", quote(s))
		}
		d += time.Duration(f * float64(unit))
	}
	return d, nil
}

// FormatDuration writes a duration as ISO 8601: days where it is whole days of two or more, else hours, minutes, seconds.
func FormatDuration(d time.Duration) string {
	if d == idempo.Forever {
		return forever
	}
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("P%dD", d/day)
	}
	if d <= 0 {
		return "PT0S"
	}
	var b strings.Builder
	b.WriteString("PT")
	if h := d / time.Hour; h > 0 {
		fmt.Fprintf(&b, "%dH", h)
	}
	if m := d % time.Hour / time.Minute; m > 0 {
		fmt.Fprintf(&b, "%dM", m)
	}
	if s := d % time.Minute; s > 0 {
		b.WriteString(strconv.FormatFloat(s.Seconds(), 'f', -1, 64) + "S")
	}
	return b.String()
}
