package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/operator"
)

var _ operator.Scanner = (*Store)(nil)

// A Scan looks at a stretch of time. The next one is twice as long, unless the last one took its time: so a table of years is
// through in a few, and one of a busy hour in pieces.
const (
	firstStretch = 10 * time.Minute
	longEnough   = 500 * time.Millisecond
)

// Scan implements operator.Scanner. A stretch with more than 1,000 hits shows the newest of them.
func (s *Store) Scan(ctx context.Context, p operator.ScanParams) (operator.Scanned, error) {
	var got operator.Scanned
	var until time.Time
	stretch := firstStretch
	if p.After != "" {
		var micros, length int64
		if n, err := fmt.Sscanf(p.After, "%x-%x", &micros, &length); err != nil || n != 2 || length <= 0 || length > int64(200*365*24*time.Hour) {
			return got, &idempo.Error{Op: "scan", Code: "invalid", Err: operator.ErrCursor}
		}
		until, stretch = time.UnixMicro(micros), time.Duration(length)
	} else {
		now, err := s.present(ctx, p.Now)
		if err != nil {
			return got, unread("scan", idempo.Key{}, err)
		}
		until = now.Add(time.Minute)
	}
	since := until.Add(-stretch)
	var r rows
	st := s.q["scan"].with(nil, "since", clock(since), "until", clock(until), "resource_kind", p.Resource.Type, "resource_name", p.Resource.ID,
		"needle", sqlkit.ReferenceText(p.Resource), "traced", strings.ToLower(p.Trace), "tenant", p.Tenant, "now", clock(p.Now))
	r.listed = true
	st.Row = r.collect()
	began := time.Now()
	if err := s.run(ctx, nil, st); err != nil {
		return got, unread("scan", idempo.Key{}, err)
	}
	for _, rec := range r.recs {
		if eff, ok := p.Match(rec, r.now); ok {
			got.Records = append(got.Records, eff)
		}
	}
	if since.Before(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) { // before there were such tables
		return got, nil
	}
	if time.Since(began) < longEnough {
		stretch *= 2
	}
	got.Back, got.Next = since.UTC(), fmt.Sprintf("%x-%x", since.UnixMicro(), int64(stretch))
	return got, nil
}

// present is the server's clock; given wins unless it is zero.
func (s *Store) present(ctx context.Context, given time.Time) (now time.Time, err error) {
	if !given.IsZero() {
		return given, nil
	}
	err = s.run(ctx, nil, Statement{SQL: "select clock_timestamp()", Row: func(scan func(...any) error) error { return scan(&now) }})
	return now, err
}
