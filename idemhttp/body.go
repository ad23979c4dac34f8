package idemhttp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

// readBody reads the body of r completely into body, or says with which problem it is refused. The spool is the caller's to
// close in either case.
// The whole body counts for the fingerprint and must be there before anything is claimed: a client that leaves while it is
// sending has spent no key.
func (s *spools) readBody(body *spool, r *http.Request, limit int64) (code string) {
	if r.ContentLength > limit {
		return "body_too_large"
	}
	s.ready(body)
	if r.Body == nil || r.Body == http.NoBody {
		return ""
	}
	code = body.fill(r.Body, limit)
	if code == "" && r.ContentLength >= 0 && body.size < r.ContentLength {
		code = "body_incomplete"
	}
	return code
}

// fill reads src to its end: into memory without a copy while it fits there, then through to the file.
func (s *spool) fill(src io.Reader, limit int64) (code string) {
	for s.file == nil {
		b := *s.buf
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := src.Read(b[len(b):min(cap(b), spoolMemory+1)])
		*s.buf = b[:len(b)+n]
		s.size += int64(n)
		switch {
		case s.size > limit:
			return "body_too_large"
		case err != nil:
			return readProblem(err)
		case s.size > spoolMemory:
			if err := s.spill(); err != nil {
				return readProblem(err)
			}
		}
	}
	_, err := io.Copy(s, io.LimitReader(src, limit-s.size+1))
	switch {
	case s.size > limit:
		return "body_too_large"
	case err != nil:
		return readProblem(err)
	}
	return ""
}

// readProblem is the problem that an error while reading a body stands for; io.EOF is none.
func readProblem(err error) string {
	if err == io.EOF {
		return ""
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return "body_too_large"
	}
	if errors.Is(err, errSpool) {
		return "store_unavailable" // no room to buffer it: nothing was claimed, and another moment may do
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "request_timeout"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "request_timeout"
	}
	return "body_incomplete"
}

// requestBody is what a guarded handler reads: the buffered body, from the beginning for each attempt. Once the handler has
// returned it reads nothing more, since its memory serves other requests then.
type requestBody struct {
	mu  sync.Mutex
	src io.Reader
	mem bytes.Reader // src, where the body is in memory
}

func (b *requestBody) open(s *spool) {
	if s.file != nil {
		b.src = s.reader()
		return
	}
	b.mem.Reset(*s.buf)
	b.src = &b.mem
}

// Read reads from the buffered body, and fails with http.ErrBodyReadAfterClose once it is closed.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.src == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.src.Read(p)
}

// Close ends reading.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.src = nil
	return nil
}
