package webhook

import (
	"strconv"
	"time"
)

// signedTime reads the text of a time. Digits only, at most 19 of them, within 63 bits; or RFC 3339 where the unit says so.
func signedTime(text string, unit Unit) (time.Time, error) {
	if unit == UnitRFC3339 {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || len(text) > 64 {
			return time.Time{}, refuse(ReasonMalformedTime, "not an RFC 3339 time")
		}
		return t, nil
	}
	n, ok := digits(text)
	if !ok {
		return time.Time{}, refuse(ReasonMalformedTime, "not a number of 1 to 19 digits")
	}
	if unit == UnitMilliseconds {
		return time.UnixMilli(n), nil
	}
	return time.Unix(n, 0), nil
}

func digits(text string) (int64, bool) {
	if len(text) < 1 || len(text) > 19 {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// within judges a signed time: both ends of the window count, past and future alike. No window: every time is right.
// Times of any size are compared by their seconds first, so that no difference overflows.
func within(signed, now time.Time, window time.Duration) (skew time.Duration, err error) {
	s, n := signed.Unix(), now.Unix()
	const far = int64(1) << 33 // seconds; some 270 years, within a Duration
	switch {
	case window <= 0 && (s > n+far || s < n-far):
		return 0, nil
	case s > n+far:
		return 0, refuse(ReasonTooNew, "the signed time is centuries ahead")
	case s < n-far:
		return 0, refuse(ReasonTooOld, "the signed time is centuries back")
	}
	skew = now.Sub(signed)
	switch {
	case window <= 0:
		return skew, nil
	case skew > window:
		return skew, refuse(ReasonTooOld, "signed "+skew.Round(time.Second).String()+" ago, the window is "+window.String())
	case skew < -window:
		return skew, refuse(ReasonTooNew, "signed "+(-skew).Round(time.Second).String()+" ahead, the window is "+window.String())
	}
	return skew, nil
}
