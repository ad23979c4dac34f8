package webhook

import "context"

// Once runs what is due for a source, one event after the other.
func Once(ctx context.Context, r *Receiver, source string) (int, error) {
	e := r.sources[source]
	return e.in.Once(ctx, e.handler())
}

// Note writes behind what came again.
func Note(ctx context.Context, r *Receiver, source string) error { return r.sources[source].noted(ctx) }
