package idemhttp

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	errWriterEnded  = errors.New("idemhttp: answer used after its handler returned")
	errAnswerTooBig = errors.New("idemhttp: answer is over MaxSpool; nothing of it will be kept")
	_               = http.ResponseWriter((*recorder)(nil))
	_               = io.ReaderFrom((*recorder)(nil))
	_               = io.StringWriter((*recorder)(nil))
	_               = http.Flusher((*recorder)(nil))
	_               = http.Hijacker((*recorder)(nil))
)

// recorder is the ResponseWriter that a guarded handler writes to. It keeps the answer until the result is stored; only 1xx
// answers leave at once. Under a lease it may stream instead: from the first Flush on where that was asked for, or once the
// answer is over its limit. It has no Unwrap, so that nothing passes it by. Safe for concurrent use, and of no effect after end.
type recorder struct {
	outer  http.ResponseWriter
	spools *spools
	limit  int64 // MaxSpool
	leased bool  // may let an answer leave before it is complete
	stream bool  // Rules.Stream

	mu        sync.Mutex
	live      http.Header // what the handler sees
	header    http.Header // as of WriteHeader; later changes have no effect but for trailers
	outside   http.Header // the outer headers before the answer began to stream
	status    int         // 0: not written
	declared  int64       // Content-Length of the handler, or -1
	written   int64       // bytes the handler wrote, whether they still could be delivered or not
	body      *spool      // own, once begun
	own       spool
	streaming bool
	sum       hash.Hash // of a streaming answer
	tooLarge  bool      // over limit, and may not stream
	broken    error     // the spool failed
	lost      error     // the client of a streaming answer is gone; the handler goes on
	ended     bool
}

// next is a recorder for another attempt. Whoever still has this one writes to nothing.
func (r *recorder) next() *recorder {
	r.free()
	return &recorder{outer: r.outer, spools: r.spools, limit: r.limit, leased: r.leased, stream: r.stream}
}

// begin readies the recorder for its attempt.
func (r *recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = make(http.Header, len(r.outer.Header())+4)
	for name, values := range r.outer.Header() {
		r.live[name] = values[:len(values):len(values)] // an append by the handler does not reach the outer header
	}
	r.body, r.declared = r.spools.ready(&r.own), -1
}

// end takes the writer away from the handler: whatever it still does with it has no effect. It fixes an answer that the
// handler left to the defaults. It returns false where the answer breaks the handler's own declaration of its length.
func (r *recorder) end() (whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return r.complete()
	}
	if r.status == 0 && r.live != nil {
		r.writeHeader(http.StatusOK)
	}
	r.ended = true
	return r.complete()
}

func (r *recorder) complete() bool {
	return r.broken == nil && (r.declared < 0 || r.written >= r.declared || !bodyAllowed(r.status))
}

// cut is end for a handler that did not return: an answer it has not begun stays unwritten.
func (r *recorder) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// free gives the buffers back. The answer cannot be read afterwards.
func (r *recorder) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.body != nil {
		r.body.close()
		r.body = nil
	}
	r.dropHeader()
}

func (r *recorder) dropHeader() {
	if r.header != nil {
		r.spools.putHeader(r.header)
		r.header = nil
	}
}

// Header is the handler's header map. It begins with what was set for this request before the guard.
func (r *recorder) Header() http.Header { return r.live }

// WriteHeader fixes status and headers of the answer. 1xx answers but 101 leave at once and fix nothing. A second call has
// no effect.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("idemhttp: invalid WriteHeader code " + strconv.Itoa(status)) // as net/http does
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.status != 0 {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		r.inform(status)
		return
	}
	r.writeHeader(status)
}

// inform sends a 1xx answer with the handler's headers, and leaves the outer headers as they were.
func (r *recorder) inform(status int) {
	h := r.outer.Header()
	saved := maps.Clone(h)
	maps.Copy(h, r.live)
	r.outer.WriteHeader(status)
	clear(h)
	maps.Copy(h, saved)
}

func (r *recorder) writeHeader(status int) {
	r.status = status
	r.header = r.spools.header()
	maps.Copy(r.header, r.live)
	if text := r.header.Get("Content-Length"); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			r.declared = n
		} else {
			delete(r.header, "Content-Length")
		}
	}
	for name := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(r.header, name)
		}
	}
	if r.leased && !r.stream && strings.HasPrefix(strings.ToLower(r.header.Get("Content-Type")), "text/event-stream") {
		r.stream = true
	}
}

// Write records p. It fails with http.ErrContentLength beyond the declared length, with http.ErrBodyNotAllowed where the
// status has no body, and where the answer is over its limit and may not leave yet.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return 0, errWriterEnded
	case r.status == 0:
		r.writeHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case !bodyAllowed(r.status):
		return 0, http.ErrBodyNotAllowed
	case r.declared >= 0 && r.written+int64(len(p)) > r.declared:
		return 0, http.ErrContentLength
	case r.broken != nil:
		return 0, r.broken
	case r.tooLarge:
		return 0, errAnswerTooBig
	}
	if !r.streaming && r.written+int64(len(p)) > r.bufferLimit() {
		if !r.leased {
			r.tooLarge = true
			return 0, errAnswerTooBig
		}
		r.startStream()
	}
	if r.streaming {
		r.send(p)
		r.written += int64(len(p))
		return len(p), nil
	}
	n, err := r.body.Write(p)
	r.written += int64(n)
	r.broken = err
	return n, err
}

// bufferLimit is what is buffered of this answer before it starts to leave: a declared stream does not fill the disk.
func (r *recorder) bufferLimit() int64 {
	if r.stream {
		return min(r.limit, spoolMemory)
	}
	return r.limit
}

// WriteString is Write for a string.
func (r *recorder) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// ReadFrom records everything src has.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{r}, src)
}

// Flush is FlushError without its error.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError lets what was written so far leave where the answer streams. Elsewhere it succeeds and does nothing, since no
// byte may leave before the result is stored.
func (r *recorder) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errWriterEnded
	}
	if r.status == 0 {
		r.writeHeader(http.StatusOK)
	}
	if !r.stream && !r.streaming {
		return nil
	}
	if !r.streaming {
		r.startStream()
	}
	if r.lost == nil {
		r.lost = http.NewResponseController(r.outer).Flush()
	}
	return nil
}

// startStream sends what there is and lets the rest through. From here on the client knows before the store does.
func (r *recorder) startStream() {
	r.streaming, r.sum = true, sha256.New()
	r.outside = r.outer.Header().Clone()
	r.sniff()
	r.headersOut()
	r.outer.Header()[headerStatus] = []string{"executed"}
	r.outer.WriteHeader(r.status)
	if _, err := io.Copy(struct{ io.Writer }{r.outer}, r.body.reader()); err != nil {
		r.lost = err
	}
	_, _ = io.Copy(r.sum, r.body.reader())
	r.body.reset()
}

// send passes p on to a client that is still there. A client that left does not disturb the handler.
func (r *recorder) send(p []byte) {
	r.sum.Write(p)
	if r.lost == nil {
		_, r.lost = r.outer.Write(p)
	}
}

// SetReadDeadline reaches the connection.
func (r *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(r.outer).SetReadDeadline(t)
}

// SetWriteDeadline reaches the connection.
func (r *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(r.outer).SetWriteDeadline(t)
}

// EnableFullDuplex reaches the connection.
func (r *recorder) EnableFullDuplex() error {
	return http.NewResponseController(r.outer).EnableFullDuplex()
}

// Hijack is not supported: an answer outside the recorder could not be kept.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// sniff sets the Content-Type that net/http would choose, so that the first answer and every replay have the same one.
func (r *recorder) sniff() {
	if _, set := r.header["Content-Type"]; set || r.body.size == 0 || !bodyAllowed(r.status) ||
		r.header.Get("Content-Encoding") != "" || r.header.Get("Transfer-Encoding") != "" {
		return
	}
	r.header["Content-Type"] = []string{http.DetectContentType(r.body.head(512))}
}

// before are the headers that were set for this request outside of the handler.
func (r *recorder) before() http.Header {
	if r.streaming {
		return r.outside
	}
	return r.outer.Header()
}

// headersOut makes the outer headers those of the answer, what the handler removed included.
func (r *recorder) headersOut() {
	h := r.outer.Header()
	for name := range h {
		if _, ok := r.header[name]; !ok {
			delete(h, name)
		}
	}
	maps.Copy(h, r.header)
}

// trailers are the trailers of an ended answer: those that it declared and those with http.TrailerPrefix.
func (r *recorder) trailers() (all http.Header) {
	add := func(name string, values []string) {
		if len(values) > 0 {
			if all == nil {
				all = http.Header{}
			}
			all[name] = values
		}
	}
	for name, values := range r.live {
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			add(http.CanonicalHeaderKey(plain), values)
		}
	}
	for _, name := range r.declaredTrailers() {
		add(name, r.live[name])
	}
	return all
}

func (r *recorder) declaredTrailers() (names []string) {
	for _, value := range r.header["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// deliver sends an ended answer to the client as the handler made it, with idempo's own headers. Of a streaming
// answer only the trailers are left. An error of the connection is the client's loss: the result is stored.
func (r *recorder) deliver(own *marks) {
	r.mu.Lock()
	defer r.mu.Unlock()
	trailer := r.trailers()
	if !r.streaming {
		r.headersOut()
		h := r.outer.Header()
		declared := r.declaredTrailers()
		for name, values := range trailer {
			if !slices.Contains(declared, name) {
				h[http.TrailerPrefix+name] = values // before the header leaves, so that net/http makes room for trailers
			}
		}
		own.sendHead(r.outer, h, r.status, r.body.size, len(trailer) > 0)
		r.body.sendTo(r.outer)
	}
	h := r.outer.Header()
	for _, name := range r.declaredTrailers() {
		if values := trailer[name]; values != nil {
			h[name] = values
		}
	}
	if r.streaming {
		for name, values := range r.live {
			if strings.HasPrefix(name, http.TrailerPrefix) {
				h[name] = values
			}
		}
	}
}

// marks are idempo's headers on an answer; empty ones are left out. They bring the room for the values along.
type marks struct {
	status  string
	expires time.Time
	next    string // one-time key

	room [4]string
	used int
}

func (m *marks) set(h http.Header, name, value string) {
	if value != "" {
		m.room[m.used] = value
		m.used++
		h[name] = m.room[m.used-1 : m.used : m.used]
	}
}

func (m *marks) put(h http.Header) {
	m.set(h, headerStatus, m.status)
	if !m.expires.IsZero() {
		m.set(h, headerExpires, m.expires.UTC().Format(http.TimeFormat))
	}
	m.set(h, headerKeyNext, m.next)
}

// sendHead sends idempo's headers and the status. The length of the body is said where no trailers need a chunked one.
func (m *marks) sendHead(w http.ResponseWriter, h http.Header, status int, size int64, trailers bool) {
	m.put(h)
	_, length := h["Content-Length"]
	_, coding := h["Transfer-Encoding"]
	if !length && !coding && !trailers && bodyAllowed(status) {
		m.set(h, "Content-Length", strconv.FormatInt(size, 10))
	}
	w.WriteHeader(status)
}

// bodyAllowed says whether an answer of this status may have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
