package publish

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"strings"
	"sync"

	"github.com/idempo/idempo/outbox"
)

// lines writes CloudEvents, one JSON object per line.
type lines struct {
	mu     sync.Mutex
	out    io.Writer
	broken func(error)
	err    error // of the first write that failed; nothing is written after it
}

// Publish implements outbox.Publisher. An event is done when its line was written as a whole.
func (l *lines) Publish(ctx context.Context, p outbox.PublishParams) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var buf bytes.Buffer
	for i := range p.Events {
		buf.Reset()
		err := l.err
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			Line(&buf, &p.Events[i])
			if _, err = l.out.Write(buf.Bytes()); err != nil {
				l.err = err
				if l.broken != nil {
					l.broken(err)
				}
			}
		}
		p.Done(i, outbox.Unavailable(err))
	}
}

// KeepsOrder implements outbox.Orderer: after a line that failed none is written.
func (l *lines) KeepsOrder() bool { return true }

// Line appends an event as CloudEvents JSON and a line end. JSON without line breaks stands as it is in data, everything else
// as data_base64; of a payload that is nil there is neither.
func Line(b *bytes.Buffer, d *outbox.Delivery) {
	b.WriteByte('{')
	first := true
	member := func(name string) {
		if !first {
			b.WriteByte(',')
		}
		first = false
		writeText(b, name)
		b.WriteByte(':')
	}
	for _, a := range d.Attributes() {
		member(a[0])
		writeText(b, a[1])
	}
	for _, x := range [][2]string{{"traceparent", d.Trace.Parent}, {"tracestate", d.Trace.State}, {"correlationid", d.Trace.Correlation}, {"idemporeplay", d.Replay}} {
		if x[1] != "" {
			member(x[0])
			writeText(b, x[1])
		}
	}
	if len(d.Headers) > 0 { // an extension holds no list
		text, _ := json.Marshal(d.Headers)
		member("headers")
		writeText(b, string(text))
	}
	switch {
	case d.Payload == nil:
	case isJSON(d.ContentType) && !bytes.ContainsAny(d.Payload, "\r\n") && json.Valid(d.Payload):
		member("data")
		b.Write(d.Payload)
	default:
		member("data_base64")
		b.WriteByte('"')
		b.WriteString(base64.StdEncoding.EncodeToString(d.Payload))
		b.WriteByte('"')
	}
	b.WriteString("}\n")
}

// writeText appends a JSON string, without the escapes that HTML would need.
func writeText(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	b.Truncate(b.Len() - 1) // its line end
}

// isJSON reports whether a content type is that of JSON; without one a CloudEvent's data is.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json"))
}
