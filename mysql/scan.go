package mysql

import (
	"context"
	"slices"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/operator"
)

var _ operator.Scanner = (*Store)(nil)

// scanStretch is how many rows one Scan looks at.
const scanStretch = 10_000

// Scan implements operator.Scanner, in the order of the keys: the tables have none of creation, which an index would have to
// give to every call. Of one stretch the newest comes first.
func (s *Store) Scan(ctx context.Context, p operator.ScanParams) (operator.Scanned, error) {
	var got operator.Scanned
	after := idempo.Key{Tenant: p.Tenant}
	if p.After != "" {
		var err error
		if after, err = operator.ParseCursor(p.After); err != nil {
			return got, &idempo.Error{Op: "scan", Code: "invalid", Err: operator.ErrCursor}
		}
	}
	args := []any{"after_tenant", after.Tenant, "after_operation", after.Operation, "after_key", after.ID, "tenant", p.Tenant, "clock", at(p.Now)}
	var end idempo.Key
	err := each(ctx, s.db, s.q["scan_end"].with(nil, append(args, "offset", int64(scanStretch-1))...), func(scan func(...any) error) error {
		return scan(&end.Tenant, &end.Operation, &end.ID)
	})
	if err != nil {
		return got, s.failed("scan", idempo.Key{}, err, reading)
	}
	r := rows{listed: true}
	err = each(ctx, s.db, s.q["scan"].with(nil, append(args, "limit", int64(scanStretch), "resource_kind", p.Resource.Type, "resource_name", p.Resource.ID,
		"needle", sqlkit.ReferenceText(p.Resource), "traced", strings.ToLower(p.Trace))...), func(scan func(...any) error) error { return r.add(scan) })
	if err != nil {
		return got, s.failed("scan", idempo.Key{}, err, reading)
	}
	for _, x := range r.rows {
		if eff, ok := p.Match(x.rec, r.now); ok {
			got.Records = append(got.Records, eff)
		}
	}
	slices.SortStableFunc(got.Records, func(a, b idempo.Record) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if end.Operation != "" {
		got.Next = operator.Cursor(end)
	}
	return got, nil
}
