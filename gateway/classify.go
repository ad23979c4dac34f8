package gateway

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// notSentError is a failure before the first byte of a request: name, dial, TLS handshake.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// wire counts the bytes written to a connection.
type wire struct {
	net.Conn
	wrote atomic.Int64
}

// Write counts before it writes: a write that fails may have sent a part.
func (w *wire) Write(p []byte) (int, error) {
	w.wrote.Add(int64(len(p)))
	return w.Conn.Write(p)
}

// CloseWrite ends our side.
func (w *wire) CloseWrite() error {
	if c, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// sending watches one attempt on one connection.
type sending struct {
	wire   *wire
	before int64
	began  atomic.Bool // the first header field has been written, into a buffer at least
}

func watch(ctx context.Context, w *wire) (context.Context, *sending) {
	s := &sending{wire: w}
	if w != nil {
		s.before = w.wrote.Load()
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { s.began.Store(true) },
	}), s
}

// streamError has the shape of net/http's HTTP/2 stream error, which converts itself for errors.As.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return "stream error" }

const refusedStream = 0x7 // RFC 9113 7: the stream was closed before any processing

// classify tells what is known after an attempt failed: never sent, or sent with an unknown outcome. What is not proven is
// unknown.
func (s *sending) classify(err error) Class {
	if _, ok := errors.AsType[*notSentError](err); ok {
		return ClassNotSent
	}
	if !s.began.Load() || (s.wire != nil && s.wire.wrote.Load() == s.before) {
		return ClassNotSent
	}
	if se, ok := errors.AsType[streamError](err); ok && se.Code == refusedStream {
		return ClassNotSent
	}
	// net/http exports neither of these. All three say that the peer, or we, left the stream out for good: RFC 9113 6.8
	// allows to send it again. classify's test meets each with a real peer, so that a changed text is noticed.
	text := err.Error()
	for _, known := range []string{
		"http2: Transport received Server's graceful shutdown GOAWAY",
		"http2: Transport received GOAWAY from server ErrCode:",
		"http2: client conn not usable",
	} {
		if strings.HasPrefix(text, known) {
			return ClassNotSent
		}
	}
	return ClassUnknown
}

// late tells a time-out from a lost link.
func late(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}
