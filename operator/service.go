package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// Config of a Service. The zero value works.
type Config struct {
	// Engine knows what the operations declare: retention, probes, encryption. Without it a settled result is kept for
	// Retention, in clear, and there is no probe to ask.
	Engine *idempo.Engine
	// Retention of what is settled where no Engine says otherwise. Default 24h.
	Retention time.Duration
	// Tombstone after it. Default ten times the retention; idempo.Forever is allowed.
	Tombstone time.Duration
	// StoredFunc returns a caller's own key as the store has it: with its digest under each digest key. Default: what Engine
	// says; without either a key is found by its reference only.
	StoredFunc func(key idempo.Key, principal string) []idempo.Key
	// ObserveFunc is told of every action: done, or refused. It must not block.
	ObserveFunc func(a Action, outcome string)
}

// Service is what an operator can do, the same for command line, API and dashboard: same checks, same audit, same answer. It
// is safe for concurrent use, starts no goroutine and keeps nothing.
//
// Every method takes the Principal that asks. What it may not see does not exist for it: the error is *Error with
// CodeNotFound, equal to that of an unknown key. Errors of the store are *idempo.Error.
type Service struct {
	store  idempo.Store
	config Config
}

// New returns the service over a store. What the store cannot do is *Error with CodeUnsupported when it is asked for.
func New(store idempo.Store, c Config) (*Service, error) {
	if store == nil {
		return nil, errors.New("operator: no store")
	}
	if c.Retention < 0 || c.Tombstone < 0 && c.Tombstone != idempo.Forever {
		return nil, errors.New("operator: a negative duration")
	}
	c.Retention = cmp.Or(c.Retention, 24*time.Hour)
	c.Tombstone = cmp.Or(c.Tombstone, 10*c.Retention)
	return &Service{store: store, config: c}, nil
}

// ListParams ask for a part of the list.
type ListParams struct {
	By    Principal
	Find  FindParams
	Stuck bool // only those that are pending for over three times as long as usual
}

// List returns the records that match, in the order of tenant, operation and digest, see Lister.
func (s *Service) List(ctx context.Context, p ListParams) (Page, error) {
	l, ok := s.store.(Lister)
	if !ok {
		return Page{}, unsupported("", "list its keys")
	}
	if p.Stuck {
		p.Find.State = idempo.StatePending
	}
	find, err := p.Find.WithDefaults()
	if err != nil {
		return Page{}, invalid("", "%v", err)
	}
	if !p.By.reads() {
		return Page{}, &Error{Code: CodeNotFound}
	}
	var at idempo.Key
	if find.After != "" {
		if at, err = ParseCursor(find.After); err != nil {
			return Page{}, invalid("", "%v", err)
		}
	}
	stuck := stuckness{lister: l}
	var page Page
	for _, tenant := range p.By.tenants(find.Tenant) {
		if p.By.Tenants != nil && tenant < at.Tenant {
			continue // an earlier page had it
		}
		part := find
		part.Tenant = tenant
		if p.By.Tenants != nil && tenant > at.Tenant {
			part.After = ""
		}
		for {
			got, err := l.List(ctx, part)
			if err != nil {
				return Page{}, err
			}
			for _, r := range got.Records {
				if p.Stuck {
					is, err := stuck.is(ctx, r)
					if err != nil {
						return Page{}, err
					}
					if !is {
						continue
					}
				}
				if len(page.Records) == find.Limit {
					page.Next = Cursor(page.Records[find.Limit-1].Key)
					return page, nil
				}
				page.Records = append(page.Records, r)
			}
			if got.Next == "" {
				break
			}
			part.After = got.Next
		}
	}
	return page, nil
}

// Target names one key: by its reference, or by what its caller sent.
type Target struct {
	Ref       string     // k_ and 26 characters
	Key       idempo.Key // tenant, operation and ID as the caller sent them; used where Ref is ""
	Principal string     // of Key, where keys are kept apart by it
}

// stored are the keys that t may have in the store; none where t is a reference.
func (s *Service) stored(t Target) []idempo.Key {
	switch {
	case t.Ref != "":
		return nil
	case s.config.StoredFunc != nil:
		return s.config.StoredFunc(t.Key, t.Principal)
	case s.config.Engine != nil:
		return s.config.Engine.Stored(t.Key, t.Principal)
	}
	return nil
}

func (s *Service) refs(t Target) (refs []string) {
	if t.Ref != "" {
		return []string{strings.ToLower(t.Ref)}
	}
	for _, key := range s.stored(t) {
		refs = append(refs, key.Ref())
	}
	return refs
}

// find returns the record of t whoever asks; State "": there is none.
func (s *Service) find(ctx context.Context, t Target) (idempo.Record, error) {
	l, ok := s.store.(Lister)
	if !ok {
		return idempo.Record{}, unsupported("", "look up a reference")
	}
	for _, ref := range s.refs(t) {
		if _, err := ParseRef(ref); err != nil {
			return idempo.Record{}, invalid("", "%v", err)
		}
		page, err := l.List(ctx, FindParams{Ref: ref, Limit: 1})
		if err != nil || len(page.Records) > 0 {
			return first(page.Records), err
		}
	}
	return idempo.Record{}, nil
}

func first(rs []idempo.Record) idempo.Record {
	if len(rs) == 0 {
		return idempo.Record{}
	}
	return rs[0]
}

// seen is find for who asks.
func (s *Service) seen(ctx context.Context, by Principal, t Target) (idempo.Record, error) {
	r, err := s.find(ctx, t)
	if err == nil && (r.State == "" || !by.reads() || !by.sees(r.Key.Tenant)) {
		return idempo.Record{}, &Error{Code: CodeNotFound}
	}
	return r, err
}

// ShowParams ask for one key.
type ShowParams struct {
	By     Principal
	Target Target
}

// Shown is what is known of a key.
type Shown struct {
	Record   idempo.Record   // without body and snapshot; of a key that has no row yet, its key and guard alone
	Held     Held            // the open transaction that runs the key, where one is known
	Attempts []idempo.Record // earlier ones, the oldest first, see Historian
	Audit    []Entry         // the newest 1,000, the oldest first
	Timeline []Moment
	Next     []NextStep
}

// Show explains one key. Where the store keeps no history or audit, there is none. A key that its caller's parts name, and that
// runs in an open transaction, is shown although it has no row yet.
func (s *Service) Show(ctx context.Context, p ShowParams) (Shown, error) {
	r, err := s.seen(ctx, p.By, p.Target)
	if CodeOf(err) == CodeNotFound {
		return s.showHeld(ctx, p, err)
	} else if err != nil {
		return Shown{}, err
	}
	shown := Shown{Record: r, Next: Next(r)}
	if r.State == idempo.StateFailed || r.State == idempo.StateIssued { // an atomic claim writes over it only when it commits
		if _, shown.Held, err = s.held(ctx, p.By, []idempo.Key{r.Key}); err != nil {
			return Shown{}, err
		}
	}
	if h, ok := s.store.(Historian); ok {
		if shown.Attempts, err = h.Attempts(ctx, r.Key); err != nil {
			return Shown{}, err
		}
	}
	if a, ok := s.store.(Auditor); ok {
		page, err := a.Audit(ctx, AuditParams{Key: r.Key, Newest: true, Limit: 1000})
		if err != nil {
			return Shown{}, err
		}
		for i := range page.Entries {
			shown.Audit = append(shown.Audit, page.Entries[len(page.Entries)-1-i])
		}
	}
	shown.Timeline = timeline(shown)
	return shown, nil
}

// showHeld is Show for a key without a row.
func (s *Service) showHeld(ctx context.Context, p ShowParams, unknown error) (Shown, error) {
	key, held, err := s.held(ctx, p.By, s.stored(p.Target))
	switch {
	case err != nil:
		return Shown{}, err
	case held.IsZero():
		return Shown{}, unknown
	}
	return Shown{Held: held, Record: idempo.Record{Key: key, State: idempo.StatePending, Guard: idempo.GuardAtomic, ClaimedAt: held.Since},
		Next: []NextStep{{Text: "its transaction commits, or rolls back and leaves nothing"}}}, nil
}

// ReadAuditParams ask for a part of the audit.
type ReadAuditParams struct {
	By    Principal
	Find  AuditParams
	KeyOf Target // only rows of this key; its record may be gone already if Target.Ref is ""
}

// Audit returns what operators did, see Auditor.
func (s *Service) Audit(ctx context.Context, p ReadAuditParams) (AuditPage, error) {
	a, ok := s.store.(Auditor)
	if !ok {
		return AuditPage{}, unsupported("", "keep an audit")
	}
	if !p.By.reads() {
		return AuditPage{}, &Error{Code: CodeNotFound}
	}
	find, err := p.Find.WithDefaults()
	if err != nil {
		return AuditPage{}, invalid("", "%v", err)
	}
	find.Tenants = p.By.Tenants
	if p.By.Tenants != nil {
		find.Tenants = append([]string{}, p.By.tenants("")...)
	}
	if p.KeyOf.Ref != "" {
		lower, err := ParseRef(p.KeyOf.Ref)
		if err != nil {
			return AuditPage{}, invalid("", "%v", err)
		}
		find.Ref = lower
	} else if p.KeyOf != (Target{}) {
		r, err := s.seen(ctx, p.By, p.KeyOf)
		if err != nil {
			return AuditPage{}, err
		}
		find.Key = r.Key
	}
	return a.Audit(ctx, find)
}

// StatsParams ask for numbers.
type StatsParams struct {
	By        Principal
	Tenant    string
	Operation string
}

// Stats counts the records that the principal sees, see Counter.
func (s *Service) Stats(ctx context.Context, p StatsParams) (Stats, error) {
	c, ok := s.store.(Counter)
	if !ok {
		return Stats{}, unsupported("", "count its keys")
	}
	if !p.By.reads() {
		return Stats{}, &Error{Code: CodeNotFound}
	}
	var sum Stats
	for _, tenant := range p.By.tenants(p.Tenant) {
		part, err := c.Count(ctx, CountParams{Tenant: tenant, Operation: p.Operation})
		if err != nil {
			return Stats{}, err
		}
		sum = sum.Add(part)
	}
	return sum, nil
}

func unsupported(a Action, what string) *Error {
	return &Error{Action: a, Code: CodeUnsupported, Hint: fmt.Sprintf("this store cannot %s", what)}
}
