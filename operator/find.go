package operator

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// Lister is a store that can list its records. Without it `keys list` says that the store cannot.
type Lister interface {
	// List returns the records that match all of p, in the order of tenant, operation and digest, at most p.Limit of
	// them, and where to go on. It takes no lock and writes nothing. Alias rows are not listed, bodies and snapshots are
	// left out. A running atomic claim may have no row yet and is then not listed.
	//
	// Following Next to its end lists every record that exists throughout exactly once, whatever is written meanwhile.
	// A cursor that List did not make is ErrCursor.
	List(ctx context.Context, p FindParams) (Page, error)
}

// Historian is a store that keeps earlier attempts. Without it only the last attempt of a key is known.
type Historian interface {
	// Attempts returns the earlier attempts of a key, oldest first; the current one is in its record. Each is a Record of
	// which State, Guard, Surface, Attempt, Generation, Owner, Result.Status, Result.Failing, Note, Trace and the times of
	// the attempt are set. A key without earlier attempts has none, and so has an unknown one.
	Attempts(ctx context.Context, key idempo.Key) ([]idempo.Record, error)
}

// ErrCursor says that a cursor was not made by List.
var ErrCursor = errors.New("not a cursor of this list")

// FindParams say which records are wanted. Every field that is set must match.
type FindParams struct {
	Ref       string       // k_ and 26 characters
	Tenant    string       //
	Operation string       //
	Surface   string       //
	State     idempo.State // as it is in effect now
	Outcome   Outcome
	OlderThan time.Duration // changed at least so long ago, on the store's clock
	NewerThan time.Duration // changed less than so long ago
	Reference idempo.Resource
	Limit     int    // of one page; 0: 100, at most 1,000
	After     string // Page.Next of the page before
	Now       time.Time
}

// Outcome says how a finished record ended.
type Outcome string

const (
	// OutcomeCompleted is a result that is a success.
	OutcomeCompleted Outcome = "completed"
	// OutcomeFailing is a final result that says no.
	OutcomeFailing Outcome = "completed_failing"
)

// Page is a part of a list.
type Page struct {
	Records []idempo.Record
	Next    string // "": this was the last page
}

// WithDefaults returns p with a legal Limit, and an error for words and combinations that match nothing.
func (p FindParams) WithDefaults() (FindParams, error) {
	p.Limit = min(cmp.Or(p.Limit, 100), 1000)
	switch {
	case p.Limit < 0 || p.OlderThan < 0 || p.NewerThan < 0:
		return p, errors.New("limit and ages must not be negative")
	case p.State != "" && !slices.Contains(States(), p.State):
		return p, fmt.Errorf("unknown state %q", p.State)
	case p.Outcome != "" && p.Outcome != OutcomeCompleted && p.Outcome != OutcomeFailing:
		return p, fmt.Errorf("unknown outcome %q", p.Outcome)
	}
	if p.Ref != "" {
		if _, err := ParseRef(p.Ref); err != nil {
			return p, err
		}
	}
	if p.After != "" {
		if _, err := ParseCursor(p.After); err != nil {
			return p, err
		}
	}
	return p, nil
}

// StateUnreadable stands in lists for what a row is that cannot be read: it was garbled, or a newer release wrote it. No record has
// that state, no filter asks for it, and every action on it is refused with CodeUnreadable.
const StateUnreadable idempo.State = "unreadable"

// States are the words of State, in the order of a record's life.
func States() []idempo.State {
	return []idempo.State{idempo.StateIssued, idempo.StatePending, idempo.StateCompleted, idempo.StateFailed, idempo.StateInDoubt, idempo.StateExpired}
}

// Stored returns the words that the column state may hold where the effective state is p.State; nil: any. A lease that ran out
// and a result whose time is over are written down only when somebody comes by.
func (p FindParams) Stored() []idempo.State {
	switch p.State {
	case "":
		return nil
	case idempo.StateInDoubt:
		return []idempo.State{idempo.StateInDoubt, idempo.StatePending}
	case idempo.StateExpired:
		return []idempo.State{idempo.StateExpired, idempo.StateCompleted}
	}
	return []idempo.State{p.State}
}

// Match returns what the stored record r means at now, and whether it is wanted.
func (p FindParams) Match(r idempo.Record, now time.Time) (idempo.Record, bool) {
	eff, live := r.Effective(now)
	if !live {
		return eff, false
	}
	finished := eff.State == idempo.StateCompleted || eff.State == idempo.StateExpired
	age := now.Sub(eff.ChangedAt)
	switch {
	case p.Ref != "" && eff.Ref() != p.Ref,
		p.Tenant != "" && eff.Key.Tenant != p.Tenant,
		p.Operation != "" && eff.Key.Operation != p.Operation,
		p.Surface != "" && eff.Surface != p.Surface,
		p.State != "" && eff.State != p.State,
		p.Outcome != "" && (!finished || (p.Outcome == OutcomeFailing) != eff.Result.Failing),
		p.OlderThan > 0 && age < p.OlderThan,
		p.NewerThan > 0 && age >= p.NewerThan,
		!p.Reference.IsZero() && eff.Result.Resource != p.Reference && !slices.Contains(eff.References, p.Reference):
		return eff, false
	}
	return eff, true
}

// Cursor returns where a list goes on after key.
func Cursor(key idempo.Key) string {
	b, err := json.Marshal([3][]byte{[]byte(key.Tenant), []byte(key.Operation), []byte(key.ID)})
	if err != nil {
		return "" // bytes always marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads what Cursor made; anything else is ErrCursor.
func ParseCursor(s string) (idempo.Key, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return idempo.Key{}, ErrCursor
	}
	var parts [][]byte
	if err := json.Unmarshal(b, &parts); err != nil || len(parts) != 3 {
		return idempo.Key{}, ErrCursor
	}
	return idempo.Key{Tenant: string(parts[0]), Operation: string(parts[1]), ID: string(parts[2])}, nil
}
