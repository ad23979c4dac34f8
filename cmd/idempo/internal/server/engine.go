package server

import (
	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/gateway"
)

// engineConfig is what the settings say of the engine.
func engineConfig(c *config.Settings, digestKeys []idempo.Secret) idempo.Config {
	e := c.Engine
	return idempo.Config{
		DigestKeys: digestKeys, EncryptionKeys: EncryptionKeys(c),
		Quota: idempo.Quota{InFlight: c.Quota.InFlight, NewPerSecond: float64(c.Quota.NewPerSecond), Burst: c.Quota.Burst},
		Lease: e.Lease, Renew: e.Renew, Retention: e.Retention, Tombstone: e.Tombstone, IssuedFor: e.IssuedFor,
		MaxResult: e.MaxResult, AcquireTimeout: c.Store.AcquireTimeout, CompleteBudget: e.CompleteBudget, TxRetries: e.TxRetries,
		MaxWaiters: e.MaxWaiters, Wait: e.Wait, ProbeEvery: e.ProbeEvery, SweepEvery: e.SweepEvery, SweepBatch: e.SweepBatch,
	}
}

// OperatorEngine is the engine of a process that serves nothing: it knows what the settings declare of retention, encryption and
// probes, and runs nothing by itself. end gives back what it holds. An error says that a digest key is not at hand, or that a
// route is not legal.
func OperatorEngine(c *config.Settings, store idempo.Store) (e *idempo.Engine, end func(), err error) {
	keys, err := DigestKeys(c)
	if err != nil {
		return nil, nil, err
	}
	if e, err = idempo.New(store, engineConfig(c, keys)); err != nil {
		return nil, nil, err
	}
	if len(c.Gateway.Routes) == 0 {
		return e, func() {}, nil
	}
	g, err := gateway.New(e, c.Gateway)
	if err != nil {
		return nil, nil, err
	}
	return e, g.Close, nil
}
