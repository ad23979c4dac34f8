package operator

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// Scanner is a store that can look through its records for what no index finds. Without it a key is found by its reference
// or by its parts only.
type Scanner interface {
	// Scan looks at one bounded stretch of the records, the newest first by creation, for those that match all of p, and
	// says where the next stretch begins. A store without an order of creation takes another; of one stretch the newest
	// comes first all the same. It takes no lock and writes nothing; bodies and snapshots are left out.
	Scan(ctx context.Context, p ScanParams) (Scanned, error)
}

// ScanParams say what is looked for; every field that is set must match.
type ScanParams struct {
	Resource idempo.Resource // that was made or referred to
	Trace    string          // a trace id, or any part of the trace context
	Tenant   string
	After    string // Scanned.Next of the stretch before; "": the newest
	Now      time.Time
}

// Scanned is what one stretch held.
type Scanned struct {
	Records []idempo.Record // the newest first
	Back    time.Time       // everything created since then has been looked at; zero: everything, or with a Next: the store has no such order
	Next    string          // "": this was the last stretch
}

// Match returns what the stored record r means at now, and whether it is looked for.
func (p ScanParams) Match(r idempo.Record, now time.Time) (idempo.Record, bool) {
	eff, live := r.Effective(now)
	trace := strings.ToLower(p.Trace)
	found := live && (p.Resource.IsZero() || eff.Result.Resource == p.Resource || slices.Contains(eff.References, p.Resource)) &&
		(trace == "" || strings.Contains(strings.ToLower(eff.Trace), trace)) && (p.Tenant == "" || eff.Key.Tenant == p.Tenant)
	eff.Result.Body, eff.Snapshot = nil, nil
	return eff, found
}

// SearchParams look for keys by what they made, or by the trace of their run.
type SearchParams struct {
	By       Principal
	Resource idempo.Resource
	Trace    string // at least 8 characters
	After    string // Scanned.Next
}

// Search looks at one stretch, see Scanner. Call it again with After until something is found or Next is "".
func (s *Service) Search(ctx context.Context, p SearchParams) (Scanned, error) {
	sc, ok := s.store.(Scanner)
	switch {
	case !ok:
		return Scanned{}, unsupported("", "search by resource or trace")
	case !p.By.reads():
		return Scanned{}, &Error{Code: CodeNotFound}
	case p.Resource.IsZero() == (p.Trace == ""):
		return Scanned{}, invalid("", "name a resource or a trace id")
	case p.Trace != "" && len(p.Trace) < 8:
		return Scanned{}, invalid("", "a trace id has at least 8 characters")
	}
	find := ScanParams{Resource: p.Resource, Trace: p.Trace, After: p.After}
	if len(p.By.Tenants) == 1 {
		find.Tenant = p.By.Tenants[0]
	}
	got, err := sc.Scan(ctx, find)
	got.Records = slices.DeleteFunc(got.Records, func(r idempo.Record) bool { return !p.By.sees(r.Key.Tenant) })
	return got, err
}
