// Package idemotel makes OpenTelemetry spans and metrics of what an engine does.
//
//	o, err := idemotel.New(idemotel.Config{TracerProvider: tp, MeterProvider: mp})
//	engine, err := idempo.New(store, idempo.Config{Observer: o, …})
//
// Spans are children of the caller's span: idempo.begin, idempo.wait, idempo.execute and idempo.complete; the work runs under
// idempo.execute. A record keeps the trace context of the call that made its result, so a replay has a link to it and a trace
// of its own. Under a span that is not sampled nothing is made, and the link is kept all the same. No baggage is read or stored, and
// no attribute holds a key, a tenant or a body.
//
// Metrics have the names of contrib/prometheus with dots for underscores, as far as an engine causes them.
//
// [NewBatch] sends spans on without ever making a call wait: what an exporter that is slow or gone leaves behind is dropped and counted.
//
// Layer: contrib. Its technology is go.opentelemetry.io/otel.
package idemotel
