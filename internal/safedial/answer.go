package safedial

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads a Retry-After header, seconds or a date: when to ask again, at most an hour ahead. false: it says nothing
// that can be read.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(n, 3600)) * time.Second, true //nolint:gosec // bounded
	} else if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-") {
		return time.Hour, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), time.Hour), true
}

// Bare leaves the URL out of a client's error: it may hold what nobody meant to log.
func Bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
