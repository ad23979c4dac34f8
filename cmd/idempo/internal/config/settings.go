package config

import (
	"cmp"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/idempo/idempo/gateway"
)

// Settings is a checked configuration: every field has its meaning and its default, save that zero fields of Engine, Quota
// and Gateway mean the default of the package they are for.
type Settings struct {
	File      string // the configuration file; empty without one
	DataDir   string
	Upstream  string // --upstream: one route for everything, on a loopback listener only
	Store     Store
	Engine    Engine
	Keys      []Key // digest keys, the first makes new records; empty: one is made in DataDir
	Encrypt   Encrypt
	Quota     Quota
	Listen    Listen
	Gateway   gateway.Config
	Webhooks  Webhooks
	Outbox    Outbox
	Relays    []Relay
	Ready     Ready
	Shutdown  Shutdown
	Dashboard Dashboard
	Metrics   Metrics
	Log       Log
	Reload    Reload
	Contract  Contract

	tree *value
}

// Store says where records live: in SQLite, or, if Postgres or MySQL is set, there.
type Store struct {
	SQLite         string // path of the file; "" if another is set
	Postgres       Secret // URL with its password; MaskURL gives what may be shown
	MySQL          Secret // the same
	Strict         bool
	AutoMigrate    bool
	AcquireTimeout time.Duration
	Schema, Prefix string // "" is the store's default
	TxIdle         time.Duration
	BusyTimeout    time.Duration
	MaxConns       int // of the process that opens it; 0: 16
}

// Engine holds the engine's defaults for operations and its bounds. Zero means the engine's default.
type Engine struct {
	CompleteBudget, Wait, ProbeEvery, MaxRun, IssuedFor time.Duration
	Lease, Renew, Retention, Tombstone, SweepEvery      time.Duration
	TxRetries, MaxWaiters, SweepBatch                   int
	MaxResult                                           int64
}

// Key is a digest key or an encryption key.
type Key struct {
	ID    string
	Value Secret
}

// Encrypt says how stored answers are kept: in clear without Keys, which are of exactly 32 bytes. The first encrypts.
type Encrypt struct {
	Keys     []Key
	Required bool // there is a key; a file that demands one and has none is not loaded
}

// Quota bounds one tenant. Zero means no limit, for InFlight the engine's default.
type Quota struct{ InFlight, NewPerSecond, Burst int }

// Listen holds addresses, HOST:PORT.
type Listen struct{ Gateway, Admin string }

// Ready says what /readyz demands.
type Ready struct{ RequiresStore bool }

// Shutdown says what SIGTERM does.
type Shutdown struct{ Delay, Grace time.Duration }

// Metrics says what /metrics shows, and to whom.
type Metrics struct {
	MaxOperations int
	Token         Secret // "": open
}

// Log says what is logged, and how: auto, text or json.
type Log struct {
	Level  slog.Level
	Format string
}

// Reload says whether a changed file is taken over by itself.
type Reload struct{ Watch bool }

func decode(root *value, s Source, r *reader) *Settings {
	root.at("version")
	c := &Settings{File: s.File, DataDir: s.DataDir, tree: root, Gateway: gatewayConfig(root)}
	if root.upstream != nil {
		c.Upstream = root.upstream.Value
		c.Gateway = gateway.ForUpstream(c.Upstream)
		limitsInto(root, &c.Gateway)
	}
	c.Webhooks = decodeWebhooks(root, r.outside)
	c.Outbox, c.Relays = decodeOutbox(root)
	c.Store = decodeStore(root.at("store"), s.DataDir)
	c.Engine = decodeEngine(root)
	security := root.at("security")
	c.Keys = decodeKeys(security.at("digest_keys"))
	c.Encrypt = Encrypt{Keys: decodeKeys(security.at("encryption_keys")), Required: security.at("require_encryption").isTrue()}
	q := root.at("quota")
	c.Quota = Quota{InFlight: int(q.at("in_flight").num), NewPerSecond: int(q.at("new_per_second").num), Burst: int(q.at("burst").num)}
	c.Listen = Listen{Gateway: root.at("listen").at("gateway").text, Admin: root.at("listen").at("admin").text}
	c.Ready.RequiresStore = root.at("ready").at("requires_store").isTrue()
	c.Shutdown = Shutdown{Delay: root.at("shutdown").at("delay").duration(), Grace: root.at("shutdown").at("grace").duration()}
	c.Dashboard = decodeDashboard(root.at("dashboard"))
	c.Metrics = Metrics{MaxOperations: int(root.at("metrics").at("max_operations").num), Token: Secret(root.at("metrics").at("token").text)}
	c.Contract = decodeContract(root.at("contract"))
	c.Reload.Watch = root.at("reload").at("watch").isTrue()
	c.Log = Log{Level: level(root.at("log").at("level").text), Format: root.at("log").at("format").text}
	return c
}

func decodeKeys(list *value) (keys []Key) {
	for _, k := range list.members {
		keys = append(keys, Key{ID: k.at("id").text, Value: Secret(k.at("value").text)})
	}
	return keys
}

func decodeStore(v *value, dataDir string) Store {
	s := Store{
		SQLite: v.at("sqlite").text, Postgres: Secret(v.at("postgres").text), MySQL: Secret(v.at("mysql").text),
		Strict: v.at("strict").isTrue(), AutoMigrate: v.at("migrate").text == "auto",
		AcquireTimeout: v.at("acquire_timeout").duration(), TxIdle: v.at("tx_idle").duration(), BusyTimeout: v.at("busy_timeout").duration(),
		Prefix: v.at("prefix").text,
	}
	if sch := v.at("schema"); sch.set {
		s.Schema = sch.text
	}
	if s.Postgres == "" && s.MySQL == "" {
		s.SQLite = cmp.Or(s.SQLite, filepath.Join(dataDir, "idempo.db"))
		s.AutoMigrate = v.at("migrate").text != "manual"
	}
	return s
}

// decodeEngine leaves zero what is not set, so that the engine's own defaults hold.
func decodeEngine(root *value) Engine {
	e, l, k := root.at("engine"), root.at("lease"), root.at("retention")
	d := func(v *value) time.Duration {
		if !v.set {
			return 0
		}
		return v.duration()
	}
	n := func(v *value) int64 {
		if !v.set {
			return 0
		}
		return v.num
	}
	return Engine{
		CompleteBudget: d(e.at("complete_budget")), Wait: d(e.at("wait")), ProbeEvery: d(e.at("probe_every")),
		MaxRun: d(e.at("max_run")), IssuedFor: d(e.at("issued_for")), Lease: d(l.at("duration")), Renew: d(l.at("renew")),
		Retention: d(k.at("result")), Tombstone: d(k.at("tombstone")), SweepEvery: d(k.at("sweep_every")),
		TxRetries: int(n(e.at("tx_retries"))), MaxWaiters: int(n(e.at("max_waiters"))), SweepBatch: int(n(k.at("sweep_batch"))),
		MaxResult: n(e.at("max_result")),
	}
}

// gatewayConfig decodes the gateway and gives its routes what the file says for all of them.
func gatewayConfig(root *value) gateway.Config {
	var c gateway.Config
	root.at("gateway").into(&c)
	limitsInto(root, &c)
	horizons := map[string]time.Duration{}
	for _, h := range root.at("retention").at("horizons").members {
		horizons[h.name] = h.duration()
	}
	result := root.at("retention").at("result")
	maxRun, wait := root.at("engine").at("max_run"), root.at("engine").at("wait")
	for i := range c.Routes {
		r := &c.Routes[i]
		if r.Operation == "" || r.Guard == "upstream" {
			continue
		}
		if r.Horizons == nil && len(horizons) > 0 {
			r.Horizons = maps.Clone(horizons)
		}
		if longest := slices.Max(append(slices.Collect(maps.Values(r.Horizons)), 0)); r.Retention == 0 && longest > 0 && result.set {
			r.Retention = max(result.duration(), longest) // the engine's own default does not count beside horizons
		}
		if maxRun.set {
			r.MaxRun = cmp.Or(r.MaxRun, maxRun.duration())
		}
		if wait.set {
			r.Wait = cmp.Or(r.Wait, wait.duration())
		}
	}
	return c
}

func limitsInto(root *value, c *gateway.Config) {
	root.at("limits").into(&c.Limits)
	root.at("outbound").into(&c.Outbound)
}

func level(s string) slog.Level {
	switch s {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// ExplicitTenant says whether the file itself names who the callers are.
func (c *Settings) ExplicitTenant() bool { return c.tree.at("gateway").at("tenant").set }
