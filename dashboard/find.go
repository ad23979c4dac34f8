package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// filter is what the query of a list says. The address is the state of the page: the same query, the same list.
type filter struct {
	State, Operation, Tenant, Surface, Outcome string
	Older, Newer                               string // ages, as in 15m or 2d
	Resource                                   string // type:id
	Stuck                                      bool
	After                                      string
	params                                     operator.FindParams
}

// filterOf reads the filters of a query; a word that none knows is an error.
func filterOf(q url.Values) (filter, error) {
	f := filter{State: q.Get("state"), Operation: q.Get("operation"), Tenant: q.Get("tenant"), Surface: q.Get("surface"), Outcome: q.Get("outcome"),
		Older: q.Get("older_than"), Newer: q.Get("newer_than"), Resource: q.Get("resource"), Stuck: q.Get("stuck") != "", After: q.Get("after")}
	p := operator.FindParams{State: idempo.State(f.State), Operation: f.Operation, Tenant: f.Tenant, Surface: f.Surface,
		Outcome: operator.Outcome(f.Outcome), After: f.After, Limit: 50}
	for _, age := range []struct {
		text string
		to   *time.Duration
	}{{f.Older, &p.OlderThan}, {f.Newer, &p.NewerThan}} {
		d, err := parseAge(age.text)
		if err != nil {
			return f, badFilter("%v", err)
		}
		*age.to = d
	}
	if f.Resource != "" {
		kind, id, ok := strings.Cut(f.Resource, ":")
		if !ok || kind == "" || id == "" {
			return f, badFilter("a resource is type:id, as in charge:ch_91")
		}
		p.Reference = idempo.Resource{Type: kind, ID: id}
	}
	p, err := p.WithDefaults()
	if err != nil {
		return f, badFilter("%v", err)
	}
	f.params = p
	return f, nil
}

func badFilter(format string, args ...any) error {
	return &operator.Error{Code: operator.CodeInvalid, Hint: fmt.Sprintf(format, args...)}
}

// parseAge reads whole numbers with the units s m h d w, also joined.
func parseAge(s string) (time.Duration, error) {
	var total time.Duration
	for rest := s; rest != ""; {
		var n int
		var unit rune
		if _, err := fmt.Sscanf(rest, "%d%c", &n, &unit); err != nil || n < 0 || n > 100_000 {
			return 0, fmt.Errorf("not an age: write whole numbers with a unit (s m h d w), as in 15m or 1h30m")
		}
		i := strings.IndexRune(rest, unit)
		rest = rest[i+1:]
		switch unit {
		case 's':
			total += time.Duration(n) * time.Second
		case 'm':
			total += time.Duration(n) * time.Minute
		case 'h':
			total += time.Duration(n) * time.Hour
		case 'd':
			total += time.Duration(n) * 24 * time.Hour
		case 'w':
			total += time.Duration(n) * 7 * 24 * time.Hour
		default:
			return 0, fmt.Errorf("not an age: the units are s m h d w")
		}
	}
	return total, nil
}

// Query is the filter as an address says it, without the place in the list.
func (f filter) Query() url.Values {
	q := url.Values{}
	put := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	put("state", f.State)
	put("operation", f.Operation)
	put("tenant", f.Tenant)
	put("surface", f.Surface)
	put("outcome", f.Outcome)
	put("older_than", f.Older)
	put("newer_than", f.Newer)
	put("resource", f.Resource)
	if f.Stuck {
		q.Set("stuck", "1")
	}
	return q
}

// flags is the filter as the command line says it.
func (f filter) flags() string {
	var b strings.Builder
	put := func(name, value string) {
		if value != "" {
			b.WriteString(" --" + name + " " + shell(value))
		}
	}
	put("state", f.State)
	put("operation", f.Operation)
	put("tenant", f.Tenant)
	put("surface", f.Surface)
	put("outcome", f.Outcome)
	put("older-than", f.Older)
	put("newer-than", f.Newer)
	put("resource", f.Resource)
	if f.Stuck {
		b.WriteString(" --stuck")
	}
	return b.String()
}

// Any says whether anything is filtered.
func (f filter) Any() bool { return len(f.Query()) > 0 }

// shell quotes a word for a POSIX shell where it needs that.
func shell(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r))
	})
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// place is a tenant and an operation that keys exist under.
type place struct{ Tenant, Operation string }

// maxPlaces bounds how many places a search looks at: each costs one row read by index.
const maxPlaces = 500

// places are the tenants and operations that the principal sees keys under, by leaps through the index: after the last possible key
// of one place comes the first of the next. whole says whether these are all.
func (v *visit) places(ctx context.Context, only place, limit int) (found []place, whole bool, err error) {
	after := ""
	if only.Tenant != "" && only.Operation != "" {
		return []place{only}, true, nil
	}
	for len(found) < limit {
		page, err := v.h.config.Operator.List(ctx, operator.ListParams{By: v.by,
			Find: operator.FindParams{Tenant: only.Tenant, Operation: only.Operation, Limit: 1, After: after}})
		if err != nil || len(page.Records) == 0 {
			return found, err == nil, err
		}
		k := page.Records[0].Key
		found = append(found, place{k.Tenant, k.Operation})
		after = operator.Cursor(idempo.Key{Tenant: k.Tenant, Operation: k.Operation, ID: strings.Repeat("\xff", 33)})
	}
	return found, false, nil
}

// search is what the search box found.
type search struct {
	Refs  []string         // of keys
	Held  []operator.Shown // keys that run in an open transaction and have no row yet
	Whole bool             // every place was looked at
	Seen  int              // places that were
}

// searchFor finds what a person has in hand: a reference, or a key as its caller sent it. Reading only.
func (v *visit) searchFor(ctx context.Context, text string, only place, principal string) (search, error) {
	text = strings.TrimSpace(text)
	if _, err := operator.ParseRef(text); err == nil {
		ref := strings.ToLower(text)
		_, err := v.show(ctx, ref)
		if err == nil {
			return search{Refs: []string{ref}, Whole: true}, nil
		}
		if operator.CodeOf(err) != operator.CodeNotFound {
			return search{}, err
		}
	}
	places, whole, err := v.places(ctx, only, maxPlaces)
	if err != nil {
		return search{}, err
	}
	s := search{Whole: whole, Seen: len(places)}
	for _, p := range places {
		shown, err := v.h.config.Operator.Show(ctx, operator.ShowParams{By: v.by,
			Target: operator.Target{Key: idempo.Key{Tenant: p.Tenant, Operation: p.Operation, ID: text}, Principal: principal}})
		switch {
		case operator.CodeOf(err) == operator.CodeNotFound:
		case err != nil:
			return s, err
		case !shown.Held.IsZero() && shown.Record.CreatedAt.IsZero():
			s.Held = append(s.Held, shown)
		case !slices.Contains(s.Refs, shown.Record.Ref()):
			s.Refs = append(s.Refs, shown.Record.Ref())
		}
	}
	return s, nil
}

func (v *visit) show(ctx context.Context, ref string) (operator.Shown, error) {
	return v.h.config.Operator.Show(ctx, operator.ShowParams{By: v.by, Target: operator.Target{Ref: ref}})
}
