package httppublish

import (
	"net/http"
	"strings"
	"time"

	"github.com/idempo/idempo/outbox"
)

// headers of one attempt: the CloudEvents attributes, what goes with the event, and the same key each time.
func (p *Publisher) headers(d *outbox.Delivery, now time.Time) http.Header {
	h := p.o.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	for _, e := range d.Extra() {
		if !connection(e[0]) {
			h.Add(e[0], legal(e[1]))
		}
	}
	for _, a := range d.Attributes() {
		if a[0] == "datacontenttype" {
			h.Set("Content-Type", legal(a[1]))
			continue
		}
		h.Set("ce-"+a[0], encode(a[1]))
	}
	if d.Payload == nil {
		h.Set("Idempo-Tombstone", "1")
	}
	h.Set("User-Agent", "idempo")
	h.Set("Idempotency-Key", d.ID)
	if len(p.o.Signing) > 0 {
		p.signer.Sign(h, d.ID, now, d.Payload)
	}
	return h
}

// connection tells the headers that belong to a connection, not to a message.
func connection(name string) bool {
	switch strings.ToLower(name) {
	case "host", "content-length", "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

// encode writes an attribute's value as the HTTP binding of CloudEvents 1.0 says (3.1.3.2): space, quote, percent and all
// but printable ASCII percent-encoded, byte by byte of its UTF-8.
func encode(s string) string {
	return escape(s, func(c byte) bool { return c <= ' ' || c == '"' || c == '%' || c >= 0x7f })
}

// legal percent-encodes what no header may hold, and leaves everything else as it is.
func legal(s string) string {
	return escape(s, func(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

func escape(s string, bad func(byte) bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; bad(c) {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
