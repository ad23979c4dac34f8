package idempo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Operation declares how one kind of intent is guarded. Guard is required; everything else has a default. Durations
// of zero take the engine's default, negative ones are refused.
type Operation struct {
	Name  string // see Key.Operation
	Guard Guard
	// OnCrash is what follows when a leased owner vanished after the effect may have begun. Default OnCrashHold.
	OnCrash OnCrash
	// ProbeFunc asks the outside world whether the effect of a record happened; required with OnCrashProbe. It says
	// StateCompleted with the result, StateFailed (it did not happen and will not), or anything else for "cannot
	// tell". It gets the record with DerivedKey and Snapshot, runs under a lease and has 30 s. It may be called by any
	// process, for a record any process claimed.
	ProbeFunc func(context.Context, Record) (State, Result, error)
	// DownstreamHonoursKey says that whoever gets the derived key performs it once. OnCrashRerun needs it, or
	// RepeatHarmless.
	DownstreamHonoursKey bool
	// RepeatHarmless is the reason why doing it twice is the same as once ("sets the address"); leased only.
	RepeatHarmless string
	// StartMark: the effect begins at Claim.Start, not with the claim; a crash before it leaves the key free.
	StartMark bool
	// Issued: only keys made by Engine.Issue may be claimed.
	Issued bool
	// SQL: records are shared with SQL callers: key and fingerprint are plain SHA-256, which is weaker against a
	// reader of the database. Requests have exactly one Input field.
	SQL bool

	IssuedFor time.Duration // how long an issued key may wait for its use
	Lease     time.Duration // how long a silent owner can block its key; 1 s to 1 h
	MaxRun    time.Duration // how long the work may take
	Retention time.Duration // how long the result is answered again, from completion
	Tombstone time.Duration // how long the fact is remembered after that; Forever is allowed
	// Horizons are the longest delays after which somebody may still ask again, by source: client_retry,
	// queue_redelivery, webhook_replay, operator_replay, settlement. The effective retention is the longest of them
	// and Retention.
	Horizons  map[string]time.Duration
	MaxResult int64 // bytes of a result's body that are kept
	// ProbeEvery is the pause after a doubt before ProbeFunc is asked again, doubling to 1 min; default Config.ProbeEvery.
	ProbeEvery time.Duration
}

func validHorizon(name string) bool {
	switch name {
	case "client_retry", "queue_redelivery", "webhook_replay", "operator_replay", "settlement":
		return true
	}
	return false
}

// withDefaults returns o with every zero value replaced.
func (o Operation) withDefaults(c Config) Operation {
	o.OnCrash = cmp.Or(o.OnCrash, c.OnCrash)
	o.IssuedFor = cmp.Or(o.IssuedFor, c.IssuedFor)
	o.Lease = cmp.Or(o.Lease, c.Lease)
	o.MaxRun = cmp.Or(o.MaxRun, c.MaxRun)
	o.MaxResult = cmp.Or(o.MaxResult, c.MaxResult)
	o.ProbeEvery = cmp.Or(o.ProbeEvery, c.ProbeEvery)
	if o.Retention == 0 && len(o.Horizons) == 0 {
		o.Retention = c.Retention
	}
	for _, h := range o.Horizons {
		o.Retention = max(o.Retention, h)
	}
	if o.Tombstone == 0 {
		o.Tombstone = cmp.Or(c.Tombstone, 10*o.Retention)
	}
	o.Horizons = maps.Clone(o.Horizons)
	return o
}

// check returns every mistake in o as declared; tx says whether the store can share a transaction.
func (o Operation) check(tx bool) []error {
	var errs []error
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("operation %q: "+format, append([]any{o.Name}, a...)...))
	}
	if !validOperation(o.Name) {
		bad("name must match [A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
	}
	switch o.Guard {
	case GuardAtomic:
		if !tx {
			bad("guard atomic needs a store whose transaction the effect can join; this one has none, set Guard to idempo.GuardLeased")
		}
		if o.StartMark || o.RepeatHarmless != "" {
			bad("StartMark and RepeatHarmless need idempo.GuardLeased: an atomic effect rolls back by itself")
		}
	case GuardLeased:
	default:
		bad("guard not declared; set Guard to idempo.GuardAtomic (effect in this database) or idempo.GuardLeased (effect anywhere)")
	}
	switch o.OnCrash {
	case "", OnCrashHold:
	case OnCrashProbe:
		if o.ProbeFunc == nil {
			bad("OnCrashProbe without ProbeFunc; set it, or use idempo.OnCrashHold")
		}
	case OnCrashRerun:
		if !o.DownstreamHonoursKey && o.RepeatHarmless == "" {
			bad("OnCrashRerun sends again; set DownstreamHonoursKey if the far side performs a derived key once, or RepeatHarmless with the reason")
		}
	default:
		bad("on_crash %q; one of hold, probe, rerun", o.OnCrash)
	}
	return append(errs, o.checkTimes(bad)...)
}

func (o Operation) checkTimes(bad func(string, ...any)) []error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"IssuedFor", o.IssuedFor}, {"Lease", o.Lease}, {"MaxRun", o.MaxRun}, {"Retention", o.Retention}, {"Tombstone", o.Tombstone}, {"MaxResult", time.Duration(o.MaxResult)}, {"ProbeEvery", o.ProbeEvery}} {
		if d.d < 0 {
			bad("%s is negative", d.name)
		}
		if d.d == Forever && d.name != "Tombstone" {
			bad("%s cannot be idempo.Forever; only Tombstone can", d.name)
		}
	}
	if o.Lease != 0 && (o.Lease < time.Second || o.Lease > time.Hour) {
		bad("Lease %v; 1s to 1h", o.Lease)
	}
	if o.MaxResult > maxMaxResult {
		bad("MaxResult over 64 MiB")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Horizons)) {
		h := o.Horizons[name]
		switch {
		case !validHorizon(name):
			bad("horizon %q is unknown; one of client_retry, queue_redelivery, webhook_replay, operator_replay, settlement", name)
		case h <= 0:
			bad("horizon %s must be positive", name)
		case o.Retention != 0 && o.Retention < h:
			bad("Retention %v is shorter than horizon %s %v: a late retry would run again", o.Retention, name, h)
		}
	}
	return nil
}

const maxMaxResult = 64 << 20

// equal reports whether two declarations are the same; functions count by presence, since they cannot be compared.
func (o Operation) equal(p Operation) bool {
	same := (o.ProbeFunc == nil) == (p.ProbeFunc == nil) && maps.Equal(o.Horizons, p.Horizons)
	o.ProbeFunc, p.ProbeFunc, o.Horizons, p.Horizons = nil, nil, nil, nil
	return same && fmt.Sprintf("%#v", o) == fmt.Sprintf("%#v", p)
}

// Declare adds operations, all or none; see Config.Operations. Declaring one again with the same settings does nothing.
// It returns one error that lists every mistake. Safe for concurrent use.
func (e *Engine) Declare(ops ...Operation) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	next, err := e.with(ops)
	if err == nil {
		e.ops = next
	}
	return err
}

// Redeclare is Declare for a process that has read its configuration again: settings of operations that are declared
// already may change, all but the guard. Claims that run keep the settings they began with.
func (e *Engine) Redeclare(ops ...Operation) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	next, fresh := maps.Clone(e.ops), map[string]*Operation{}
	for _, o := range ops {
		errs = append(errs, o.check(e.tx != nil)...)
		full := o.withDefaults(e.cfg)
		if old, ok := next[o.Name]; ok && old.Guard != full.Guard {
			errs = append(errs, fmt.Errorf("operation %q: the guard changes from %s to %s; that takes a restart", o.Name, old.Guard, full.Guard))
		}
		if twin, ok := fresh[o.Name]; ok && !twin.equal(full) {
			errs = append(errs, fmt.Errorf("operation %q: declared twice with different settings", o.Name))
		}
		fresh[o.Name] = &full
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	maps.Copy(next, fresh)
	e.ops = next
	return nil
}

// Check returns what Declare would, and declares nothing: a surface adds it to mistakes of its own.
func (e *Engine) Check(ops ...Operation) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	_, err := e.with(ops)
	return err
}

// with returns the declared operations and ops. The caller holds e.mu.
func (e *Engine) with(ops []Operation) (map[string]*Operation, error) {
	var errs []error
	next := maps.Clone(e.ops)
	for _, o := range ops {
		bad := o.check(e.tx != nil)
		errs = append(errs, bad...)
		full := o.withDefaults(e.cfg)
		if old, ok := next[o.Name]; ok && !old.equal(full) {
			errs = append(errs, fmt.Errorf("operation %q: declared twice with different settings", o.Name))
		}
		next[o.Name] = &full
	}
	return next, errors.Join(errs...)
}

// Operations returns what is declared, with defaults filled in, sorted by name.
func (e *Engine) Operations() []Operation {
	e.mu.RLock()
	defer e.mu.RUnlock()
	out := make([]Operation, 0, len(e.ops))
	for _, name := range slices.Sorted(maps.Keys(e.ops)) {
		o := *e.ops[name]
		o.Horizons = maps.Clone(o.Horizons)
		out = append(out, o)
	}
	return out
}

func (e *Engine) operation(name string) *Operation {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.ops[name]
}
