package operator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// Auditor is a store that can read what operators did. Rows are appended by Changer and never changed.
type Auditor interface {
	// Audit returns the rows that match all of p, the oldest first, at most p.Limit of them, and where to go on. With
	// p.Newest the newest come first. It takes no lock and writes nothing.
	Audit(ctx context.Context, p AuditParams) (AuditPage, error)
}

// Recorder is a store that writes an audit row for what was changed beside its records: messages, events.
type Recorder interface {
	// RecordAudit adds e to the audit, in the transaction of ctx if there is one, and returns it with its ID and the
	// store's time.
	RecordAudit(ctx context.Context, e Entry) (Entry, error)
}

// Outcomes of an audit row.
const (
	OutcomeDone    = "done"
	OutcomeRefused = "refused"
)

// Entry is one row of the audit.
type Entry struct {
	ID       int64     // grows; a cursor is made of it
	At       time.Time // on the store's clock
	Actor    string
	Role     Role
	Channel  string
	Action   Action
	Outcome  string // done, refused
	Code     string // of a refusal
	Key      idempo.Key
	Attempt  int64
	Before   idempo.State
	After    idempo.State // "": removed
	Reason   string
	Evidence string
}

// AuditParams say which rows are wanted. Every field that is set must match.
type AuditParams struct {
	Key     idempo.Key // whole, or its Tenant or Operation alone
	Ref     []byte     // the first 16 bytes of a digest, see ParseRef; nil: any
	Tenants []string   // nil: all, also rows that are about no key
	Actor   string
	Action  Action
	Outcome string
	Since   time.Time // at or after
	Until   time.Time // before
	Newest  bool      // the newest first
	Limit   int       // of one page; 0: 100, at most 1,000
	After   string    // AuditPage.Next of the page before
}

// AuditPage is a part of the audit.
type AuditPage struct {
	Entries []Entry
	Next    string // "": this was the last page
}

// WithDefaults returns p with a legal Limit, or why it is not legal.
func (p AuditParams) WithDefaults() (AuditParams, error) {
	p.Limit = min(cmp.Or(p.Limit, 100), 1000)
	switch {
	case p.Limit < 0:
		return p, errors.New("limit must not be negative")
	case p.Outcome != "" && p.Outcome != OutcomeDone && p.Outcome != OutcomeRefused:
		return p, errors.New("outcome is done or refused")
	case p.Action != "" && !slices.Contains(Actions(), p.Action):
		return p, errors.New("unknown action")
	}
	_, err := p.From()
	return p, err
}

// From is the id after which, in the order of p, the page begins; 0: at the beginning.
func (p AuditParams) From() (int64, error) {
	if p.After == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(p.After, 36, 64)
	if err != nil || id <= 0 {
		return 0, ErrCursor
	}
	return id, nil
}

// Page cuts entries, of which p.Limit + 1 were asked for, to a page.
func (p AuditParams) Page(entries []Entry) AuditPage {
	if len(entries) <= p.Limit {
		return AuditPage{Entries: entries}
	}
	entries = entries[:p.Limit]
	return AuditPage{Entries: entries, Next: strconv.FormatInt(entries[p.Limit-1].ID, 36)}
}

// Match says whether e is wanted, its place apart.
func (p AuditParams) Match(e Entry) bool {
	return (p.Ref == nil || strings.HasPrefix(e.Key.ID, string(p.Ref))) && (p.Tenants == nil || slices.Contains(p.Tenants, e.Key.Tenant)) &&
		(p.Key.Tenant == "" || e.Key.Tenant == p.Key.Tenant) && (p.Key.Operation == "" || e.Key.Operation == p.Key.Operation) &&
		(p.Key.ID == "" || e.Key.ID == p.Key.ID) && (p.Actor == "" || e.Actor == p.Actor) && (p.Action == "" || e.Action == p.Action) &&
		(p.Outcome == "" || e.Outcome == p.Outcome) && (p.Since.IsZero() || !e.At.Before(p.Since)) && (p.Until.IsZero() || e.At.Before(p.Until))
}
