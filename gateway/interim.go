package gateway

import (
	"maps"
	"net/http"
	"net/textproto"
	"sync"
)

// interim passes the 1xx answers of one exchange on. The transport brings them in a goroutine of its own, which goes on
// reading after a time-out: from end on the writer is the handler's alone.
type interim struct {
	w http.ResponseWriter

	mu   sync.Mutex
	over bool
}

// pass sends one on; it is a Got1xxResponse of httptrace, and never fails.
func (i *interim) pass(code int, header textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over || code <= http.StatusSwitchingProtocols { // 100 is ours to give, and 101 is an answer
		return nil
	}
	h := i.w.Header()
	saved := h.Clone()
	maps.Copy(h, header)
	i.w.WriteHeader(code)
	clear(h)
	maps.Copy(h, saved)
	return nil
}

// end waits for one that is on its way.
func (i *interim) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
}
