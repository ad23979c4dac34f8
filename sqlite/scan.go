package sqlite

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/operator"
)

var _ operator.Scanner = (*Store)(nil)

// scanStretch is how many places of the table one Scan looks at.
const scanStretch = 20_000

// Scan implements operator.Scanner: by places of the table, which follow creation.
func (s *Store) Scan(ctx context.Context, p operator.ScanParams) (operator.Scanned, error) {
	var got operator.Scanned
	to, err := s.countPlaces(ctx)
	if p.After != "" {
		if to, err = strconv.ParseInt(p.After, 36, 64); err != nil || to <= 0 {
			return got, &idempo.Error{Op: "scan", Code: "invalid", Err: operator.ErrCursor}
		}
	}
	if err != nil {
		return got, failure("scan", idempo.Key{}, err, false)
	}
	from := max(0, to-scanStretch)
	records, err := s.listed(ctx, "scan", from, to, p.Resource.Type, p.Resource.ID, []byte(sqlkit.ReferenceText(p.Resource)), strings.ToLower(p.Trace), p.Tenant)
	if err != nil {
		return got, failure("scan", idempo.Key{}, err, false)
	}
	now := s.now(p.Now)
	for _, r := range records {
		if eff, ok := p.Match(r, now); ok {
			got.Records = append(got.Records, eff)
		}
	}
	if from == 0 {
		return got, nil
	}
	got.Next = strconv.FormatInt(from, 36)
	got.Back, err = s.scanBack(ctx, from)
	return got, failure("scan", idempo.Key{}, err, false)
}

// scanBack is when the records behind a place began to be created.
func (s *Store) scanBack(ctx context.Context, place int64) (at time.Time, err error) {
	rows, err := s.readRows(ctx, "scan_back", place)
	if err != nil {
		return at, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n sql.NullInt64
		if err := rows.Scan(&n); err != nil {
			return at, err
		}
		at = fromMicros(n)
	}
	return at, rows.Err()
}
