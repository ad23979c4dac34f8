package idemprometheus

import (
	"cmp"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idempo/idempo"
)

var (
	_ idempo.Observer      = (*Metrics)(nil)
	_ http.Handler         = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// Config is fixed when New returns. Its zero value works.
type Config struct {
	// MaxOperations is how many operations get series of their own; the rest are counted as "_other". Default 200.
	MaxOperations int
	// Version and Revision are shown by idempo_build_info. Default "unknown".
	Version, Revision string
	// Process adds the metrics of the Go runtime and of the process to the handler.
	Process bool
}

// Metrics counts events and serves the counters. It is safe for concurrent use. Register it at a registry of your own, or let
// it answer scrapes itself; both show the same numbers.
type Metrics struct {
	config  Config
	vectors vectors
	handler http.Handler

	mu         sync.Mutex // guards the making of series, never their use
	operations map[string]struct{}
	byCall     sync.Map // callKey → *callSeries
	byName     sync.Map // operation → *operationSeries
	byStore    sync.Map // op → *storeSeries
	byUpstream sync.Map // operation → *upstreamSeries

	descs storeDescs
	shown atomic.Pointer[shown]

	declared atomic.Pointer[func() []idempo.Operation]
	heard    sync.Map // webhook source → time of its last event in this process
}

// New returns metrics that have counted nothing.
func New(c Config) *Metrics {
	c.MaxOperations = cmp.Or(c.MaxOperations, 200)
	c.Version, c.Revision = cmp.Or(c.Version, "unknown"), cmp.Or(c.Revision, "unknown")
	m := &Metrics{config: c, vectors: newVectors(), operations: map[string]struct{}{}, descs: newStoreDescs()}
	m.vectors.build.WithLabelValues(c.Version, c.Revision, runtime.Version()).Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	if c.Process {
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4})
	return m
}

// ServeHTTP answers a scrape: text format, or OpenMetrics with exemplars where Accept asks for it. It does no I/O besides.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.vectors.all() {
		c.Describe(ch)
	}
	m.descs.describe(ch)
	ch <- m.vectors.hookHeard
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.vectors.all() {
		c.Collect(ch)
	}
	m.retentions(ch)
	m.collect(ch)
	collectHeard(&m.heard, m.vectors.hookHeard, ch)
}

const other = "_other"

// operation returns the label of an operation: its name, or "_other" beyond the limit. The caller holds m.mu.
func (m *Metrics) operation(name string) string {
	if name == "" {
		return other
	}
	if _, known := m.operations[name]; known {
		return name
	}
	if len(m.operations) >= m.config.MaxOperations {
		return other
	}
	m.operations[name] = struct{}{}
	return name
}

// surface returns the label of a surface.
func surface(name string) string {
	switch name {
	case "http", "grpc", "inbox", "webhook", "saga", "run", "task", "client", "mcp":
		return name
	}
	return other
}
