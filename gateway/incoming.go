package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// incoming is the body of a request. It gives the body its time: the whole of it to that of a guarded request, each
// 64 KiB of another until the upstream has answered. And it carries trailers over.
//
// The time runs from the start, read or not: net/http itself reads what a handler left, and without a deadline a client
// that sends nothing would hold it up for ever.
type incoming struct {
	io.ReadCloser
	in      *http.Request
	control *http.ResponseController
	each    time.Duration
	whole   bool        // each is for the whole body
	trailer http.Header // of the outgoing request; its names are those announced
	since   int
	started atomic.Bool
	over    atomic.Bool // no time runs any more
	ended   atomic.Bool // it was read to its end
	broken  atomic.Bool // it ended in an error: nothing more on this connection can be a request
}

type incomingKey struct{}

func incomingOf(ctx context.Context) *incoming {
	b, _ := ctx.Value((*incomingKey)(nil)).(*incoming)
	return b
}

// withBody is r with its body timed; r itself where it has none.
func (g *Gateway) withBody(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &incoming{ReadCloser: r.Body, control: http.NewResponseController(w), each: g.config.Timeouts.ReadBody}
	_ = b.control.SetReadDeadline(time.Now().Add(b.each)) // a transport without deadlines has its own limits
	r.Body = b
	r = r.WithContext(context.WithValue(r.Context(), (*incomingKey)(nil), b))
	b.in = r
	return r
}

func (b *incoming) begun() bool { return b != nil && b.started.Load() }

// Read reads within the time of the current 64 KiB.
func (b *incoming) Read(p []byte) (int, error) {
	if b.since >= 64<<10 && !b.whole && !b.over.Load() {
		b.since = 0
		_ = b.control.SetReadDeadline(time.Now().Add(b.each))
		if b.over.Load() {
			_ = b.control.SetReadDeadline(time.Time{})
		}
	}
	b.started.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.since += n
	switch {
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
		b.answered()
		for name := range b.trailer {
			b.trailer[name] = b.in.Trailer[name]
		}
	case err != nil:
		b.broken.Store(true)
	}
	return n, err
}

// answered ends the time: the exchange is now the upstream's.
func (b *incoming) answered() {
	if !b.over.Swap(true) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

// spoilt tells a body that was read in part: what is left on the connection is not the start of a request. An answer
// then ends the connection at once, where net/http would first wait for the rest.
func (b *incoming) spoilt() bool {
	return b != nil && (b.broken.Load() || (b.started.Load() && !b.ended.Load()))
}
