package idempo

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config is fixed when New returns. Zero values mean the defaults, negative ones are refused.
type Config struct {
	// DigestKeys make key digests and fingerprints: at least one, each of 32 bytes or more. The first makes new
	// records; a claim occupies the digests under all of them, so that a key can be rotated (page security, 2.5).
	DigestKeys []Secret
	// EncryptionKeys of exactly 32 bytes encrypt results and snapshots; the first encrypts, all decrypt.
	EncryptionKeys []Secret
	// EncryptionKeyFunc gives a tenant its own keys, instead of EncryptionKeys. None is "cannot be read any more".
	EncryptionKeyFunc func(tenant string) ([]Secret, error)
	Operations        []Operation
	Quota             Quota
	Observer          Observer     // nil costs nothing
	Logger            *slog.Logger // nil: no logging

	Lease     time.Duration // 30s
	Renew     time.Duration // a third of the lease; set: for operations without a lease of their own, under half of Lease
	MaxRun    time.Duration // 15m
	Retention time.Duration // 24h
	Tombstone time.Duration // ten times the effective retention
	IssuedFor time.Duration // 1h
	MaxResult int64         // 1 MiB, at most 64 MiB
	OnCrash   OnCrash       // OnCrashHold

	AcquireTimeout time.Duration // 1s: for a connection and an answer to a claim
	CompleteBudget time.Duration // 10s: to store a result, and to settle a COMMIT without an answer
	TxRetries      int           // 3: further runs after a serialization failure
	MaxWaiters     int           // 100 a key; ten times as many a process
	Wait           time.Duration // 0, at most 60s: for requests that set none
	ProbeEvery     time.Duration // 5s, doubling to 1m
	SweepEvery     time.Duration // 1m
	SweepBatch     int           // 1000
}

// Quota bounds what one tenant may use in one process. Over it a new key is refused with code quota_exceeded; a key
// that has a record is still answered.
type Quota struct {
	InFlight     int     // running claims; 1,000
	NewPerSecond float64 // new keys; no limit unless set
	Burst        int     // new keys at once; NewPerSecond rounded up unless set
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.MaxRun = cmp.Or(c.MaxRun, 15*time.Minute)
	c.Retention = cmp.Or(c.Retention, 24*time.Hour)
	c.IssuedFor = cmp.Or(c.IssuedFor, time.Hour)
	c.MaxResult = cmp.Or(c.MaxResult, 1<<20)
	c.OnCrash = cmp.Or(c.OnCrash, OnCrashHold)
	c.AcquireTimeout = cmp.Or(c.AcquireTimeout, time.Second)
	c.CompleteBudget = cmp.Or(c.CompleteBudget, 10*time.Second)
	c.TxRetries = cmp.Or(c.TxRetries, 3)
	c.MaxWaiters = cmp.Or(c.MaxWaiters, 100)
	c.ProbeEvery = cmp.Or(c.ProbeEvery, 5*time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, time.Minute)
	c.SweepBatch = cmp.Or(c.SweepBatch, 1000)
	c.Quota.InFlight = cmp.Or(c.Quota.InFlight, 1000)
	if c.Quota.NewPerSecond > 0 && c.Quota.Burst == 0 {
		c.Quota.Burst = int(c.Quota.NewPerSecond + 0.999)
	}
	return c
}

// check returns every mistake of the configuration as given.
func (c Config) check() (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if len(c.DigestKeys) == 0 {
		bad("DigestKeys is empty; one secret of at least 32 random bytes is required")
	}
	errs = append(errs, checkSecrets("DigestKeys", c.DigestKeys, 32, 0)...)
	errs = append(errs, checkSecrets("EncryptionKeys", c.EncryptionKeys, 32, 32)...)
	for _, d := range []struct {
		name string
		v    float64
	}{
		{"Lease", float64(c.Lease)}, {"Renew", float64(c.Renew)}, {"MaxRun", float64(c.MaxRun)}, {"Retention", float64(c.Retention)},
		{"Tombstone", float64(c.Tombstone)}, {"IssuedFor", float64(c.IssuedFor)}, {"MaxResult", float64(c.MaxResult)},
		{"AcquireTimeout", float64(c.AcquireTimeout)}, {"CompleteBudget", float64(c.CompleteBudget)}, {"TxRetries", float64(c.TxRetries)},
		{"MaxWaiters", float64(c.MaxWaiters)}, {"Wait", float64(c.Wait)}, {"ProbeEvery", float64(c.ProbeEvery)},
		{"SweepEvery", float64(c.SweepEvery)}, {"SweepBatch", float64(c.SweepBatch)}, {"Quota.InFlight", float64(c.Quota.InFlight)},
		{"Quota.NewPerSecond", c.Quota.NewPerSecond}, {"Quota.Burst", float64(c.Quota.Burst)},
	} {
		if d.v < 0 {
			bad("%s is negative", d.name)
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"Lease", c.Lease}, {"MaxRun", c.MaxRun}, {"Retention", c.Retention}, {"IssuedFor", c.IssuedFor}} {
		if d.d == Forever {
			bad("%s cannot be idempo.Forever; only Tombstone can", d.name)
		}
	}
	lease := cmp.Or(c.Lease, 30*time.Second)
	switch {
	case c.Lease != 0 && (c.Lease < time.Second || c.Lease > time.Hour):
		bad("Lease %v; 1s to 1h", c.Lease)
	case c.Renew >= lease/2 && c.Renew > 0:
		bad("Renew %v must be under half of Lease %v", c.Renew, lease)
	}
	if c.MaxResult > maxMaxResult {
		bad("MaxResult over 64 MiB")
	}
	if c.Wait > time.Minute {
		bad("Wait %v is over 60s", c.Wait)
	}
	if c.OnCrash == OnCrashRerun || c.OnCrash == OnCrashProbe {
		bad("OnCrash %s cannot be a default; declare it per operation", c.OnCrash)
	}
	return errs
}

// New returns an engine over store. It starts nothing: Run does background work. The error lists every mistake in
// config at once. The engine keeps copies of what config holds; the secrets' values must not change afterwards.
func New(store Store, config Config) (*Engine, error) {
	if store == nil {
		return nil, errors.New("idempo: store is nil")
	}
	e := &Engine{store: store, ops: map[string]*Operation{}}
	var errs []error
	if tx, ok := store.(Transactor); ok {
		e.tx = tx
		if e.joiner, ok = store.(Joiner); !ok {
			errs = append(errs, errors.New("the store is a Transactor but no Joiner"))
		}
	}
	e.sweeper, _ = store.(Sweeper)
	e.taker, _ = store.(Taker)
	e.tracer, _ = config.Observer.(Tracer)
	errs = append(errs, config.check()...)
	e.cfg = config.withDefaults()
	e.cfg.Operations = nil
	e.ring = newKeyring(e.cfg.DigestKeys)
	e.flights.init(e.cfg.MaxWaiters)
	e.quota.init(e.cfg.Quota)
	e.late.e = e
	e.owner = ownerName()
	if err := e.Declare(config.Operations...); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("idempo: %w", err)
	}
	return e, nil
}
