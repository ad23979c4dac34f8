package sqlkit

import (
	"bytes"
	"fmt"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// Columns lists the columns of table records in the order in which Row scans and Values writes them.
func Columns() []string {
	return []string{
		"tenant_id", "operation", "idempotency_key", "alias_of",
		"request_hash", "request_recipe", "request_detail",
		"state", "guard", "on_crash", "surface", "failing",
		"attempt", "generation", "token", "owner", "claimed_at", "started_at", "lease_until",
		"status_code", "response_headers", "response_body", "body_size", "body_sha256", "body_kept",
		"resource_type", "resource_id", "refs",
		"derived_key", "snapshot", "due_at", "note", "trace", "sealed", "format",
		"created_at", "changed_at", "completed_at", "issued_until", "expires_at", "gone_at",
	}
}

// Row is one row of table records while it is read. Every column may be NULL: an alias row holds little but the key, an
// outer join nothing. The zero Row is ready; use one per row.
type Row struct {
	// Micros is set before Dest where times are stored as integers, microseconds since 1970; else the driver's own
	// time.Time is expected.
	Micros bool

	tenant, operation                                                 *string
	key, alias                                                        []byte
	hash, detail, token, headers, body, sum, refs, snapshot           []byte
	recipe, state, guard, onCrash, surface, owner                     *string
	resourceType, resourceID, derived, note, trace, sealed            *string
	failing, kept                                                     *bool
	attempt, generation, status, size, format                         *int64
	claimed, started, lease, due, created, changed, completed, issued when
	expires, gone                                                     when
}

// when is a time in either form.
type when struct {
	stamp  *time.Time
	micros *int64
}

func (w *when) dest(micros bool) any {
	if micros {
		return &w.micros
	}
	return &w.stamp
}

func (w *when) time() time.Time {
	switch {
	case w.stamp != nil:
		return w.stamp.UTC()
	case w.micros != nil:
		return time.UnixMicro(*w.micros).UTC()
	}
	return time.Time{}
}

// Dest returns where to scan the columns of Columns, and room for more destinations behind them.
func (r *Row) Dest() []any {
	m := r.Micros
	d := make([]any, 0, 48)
	return append(d,
		&r.tenant, &r.operation, &r.key, &r.alias,
		&r.hash, &r.recipe, &r.detail,
		&r.state, &r.guard, &r.onCrash, &r.surface, &r.failing,
		&r.attempt, &r.generation, &r.token, &r.owner, r.claimed.dest(m), r.started.dest(m), r.lease.dest(m),
		&r.status, &r.headers, &r.body, &r.size, &r.sum, &r.kept,
		&r.resourceType, &r.resourceID, &r.refs,
		&r.derived, &r.snapshot, r.due.dest(m), &r.note, &r.trace, &r.sealed, &r.format,
		r.created.dest(m), r.changed.dest(m), r.completed.dest(m), r.issued.dest(m), r.expires.dest(m), r.gone.dest(m),
	)
}

// Alias returns the digest of the record that this row points at, "" where the row is a record itself.
func (r *Row) Alias() string { return string(r.alias) }

// Record returns the row as it is stored, not its effective state. The Row must not be scanned into again: byte
// slices are handed over. A row that does not parse, or has a word that is none, is code record_unreadable.
func (r *Row) Record() (idempo.Record, error) {
	rec := idempo.Record{
		Key:  idempo.Key{Tenant: deref(r.tenant), Operation: deref(r.operation), ID: string(r.key)},
		Hash: r.hash, Recipe: deref(r.recipe), Detail: r.detail,
		State: idempo.State(deref(r.state)), Guard: idempo.Guard(deref(r.guard)), OnCrash: idempo.OnCrash(deref(r.onCrash)),
		Surface: deref(r.surface), Attempt: deref(r.attempt), Generation: deref(r.generation), Owner: deref(r.owner),
		Result: idempo.Result{
			Status: int(deref(r.status)), Body: r.body, Failing: deref(r.failing),
			Resource: idempo.Resource{Type: deref(r.resourceType), ID: deref(r.resourceID)},
		},
		BodySize: deref(r.size), BodySHA256: r.sum, BodyKept: deref(r.kept),
		DerivedKey: deref(r.derived), Snapshot: r.snapshot, Note: deref(r.note), Trace: deref(r.trace),
		Sealed: deref(r.sealed), Format: int(deref(r.format)),
		ClaimedAt: r.claimed.time(), StartedAt: r.started.time(), LeaseUntil: r.lease.time(), DueAt: r.due.time(),
		CreatedAt: r.created.time(), ChangedAt: r.changed.time(), CompletedAt: r.completed.time(),
		IssuedUntil: r.issued.time(), ExpiresAt: r.expires.time(), GoneAt: r.gone.time(),
	}
	copy(rec.Token[:], r.token)
	var err error
	if rec.Result.Header, err = ParseHeaders(r.headers); err == nil {
		rec.References, err = ParseReferences(r.refs)
	}
	if err == nil {
		err = words(rec)
	}
	if err != nil {
		return idempo.Record{}, &idempo.Error{Op: "read", Code: "record_unreadable", KeyRef: rec.Ref(), Err: err}
	}
	return rec, nil
}

// Listed is Record for lists, in which a row that cannot be read stands as such and in nobody's way: a record of state
// operator.StateUnreadable, not Readable, with its key and little else.
func (r *Row) Listed() idempo.Record {
	rec, err := r.Record()
	if err == nil {
		return rec
	}
	return idempo.Record{
		Key:   idempo.Key{Tenant: deref(r.tenant), Operation: deref(r.operation), ID: string(r.key)},
		State: operator.StateUnreadable, Format: format + 1, Surface: deref(r.surface), Attempt: deref(r.attempt), Generation: deref(r.generation),
		CreatedAt: r.created.time(), ChangedAt: r.changed.time(),
	}
}

// format is the newest row format that is read here. A row of a newer one may mean something else: nobody judges it, and
// no sweep touches it.
const format = 1

// words returns what is wrong with the format or the words of rec. Not every database checks them.
func words(rec idempo.Record) error {
	if rec.Format > format {
		return fmt.Errorf("row format %d is of a newer release", rec.Format)
	}
	switch rec.State {
	case idempo.StateIssued, idempo.StatePending, idempo.StateCompleted, idempo.StateFailed, idempo.StateInDoubt, idempo.StateExpired:
	default:
		return fmt.Errorf("state %q is none", rec.State)
	}
	switch rec.Guard {
	case "", idempo.GuardAtomic, idempo.GuardLeased:
	default:
		return fmt.Errorf("guard %q is none", rec.Guard)
	}
	switch rec.OnCrash {
	case "", idempo.OnCrashHold, idempo.OnCrashProbe, idempo.OnCrashRerun:
	default:
		return fmt.Errorf("on_crash %q is none", rec.OnCrash)
	}
	return nil
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Encoding says how a database takes values that databases spell differently.
type Encoding struct {
	Time   func(time.Time) any // of a time that is not zero; nil: microseconds since 1970 as int64
	Binary bool                // tenant and operation as []byte
}

// Values returns rec's columns in the order of Columns, as int64, bool, string, []byte or nil. Byte slices are rec's
// own. Zero tokens, zero times, nil slices and empty optional texts are NULL; an empty slice is an empty value.
func (e Encoding) Values(rec idempo.Record) []any {
	at := func(t time.Time) any {
		switch {
		case t.IsZero():
			return nil
		case e.Time != nil:
			return e.Time(t)
		}
		return t.UnixMicro()
	}
	name := func(s string) any {
		if e.Binary {
			return []byte(s)
		}
		return s
	}
	var token any
	if !rec.Token.IsZero() {
		token = bytes.Clone(rec.Token[:])
	}
	v := make([]any, 0, 48)
	return append(v,
		name(rec.Key.Tenant), name(rec.Key.Operation), []byte(rec.Key.ID), nil,
		Bytes(rec.Hash), rec.Recipe, Bytes(rec.Detail),
		string(rec.State), string(rec.Guard), string(rec.OnCrash), rec.Surface, rec.Result.Failing,
		rec.Attempt, rec.Generation, token, Text(rec.Owner), at(rec.ClaimedAt), at(rec.StartedAt), at(rec.LeaseUntil),
		int64(rec.Result.Status), Bytes(Headers(rec.Result.Header)), Bytes(rec.Result.Body), rec.BodySize,
		Bytes(rec.BodySHA256), rec.BodyKept,
		optional(rec.Result.Resource.Type), optional(rec.Result.Resource.ID), Bytes(References(rec.References)),
		optional(rec.DerivedKey), Bytes(rec.Snapshot), at(rec.DueAt), optional(Text(rec.Note)), optional(Text(rec.Trace)),
		optional(rec.Sealed), int64(rec.Format),
		at(rec.CreatedAt), at(rec.ChangedAt), at(rec.CompletedAt), at(rec.IssuedUntil), at(rec.ExpiresAt), at(rec.GoneAt),
	)
}

// Bytes is b as an argument: a nil slice becomes NULL with every driver, an empty one stays a value.
func Bytes(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}
