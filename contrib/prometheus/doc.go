// Package idemprometheus counts what an engine does and serves it to Prometheus.
//
//	m := idemprometheus.New(idemprometheus.Config{})
//	engine, err := idempo.New(store, idempo.Config{Observer: m, …})
//	mux.Handle("/metrics", m)
//
// [Metrics] is an [idempo.Observer] and an http.Handler. Counting takes no lock, makes no allocation once an operation has
// been seen, and reads nothing; a scrape reads counters in memory and never asks the store, so it answers while the store is
// down. The number of series depends on the declared operations and the configuration alone: no label holds anything that a
// caller sent.
//
// Counters count this process; sum them over processes. Names and labels are public: a change is an entry in the changelog.
//
// Layer: contrib. Its technology is github.com/prometheus/client_golang.
package idemprometheus
