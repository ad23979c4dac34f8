package webhook

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"time"
)

// Accepted is what a request turned out to be.
type Accepted struct {
	// Reply answers a handshake, or a method that the source does not take; then nothing else is set but Confirm.
	Reply *Reply
	// Confirm is a pinned URL of SNS that has to be asked, with one GET, before Reply is given.
	Confirm  string
	Verdict  Verdict
	Delivery Delivery
}

// Accept takes a request the whole way that needs no store: unsigned handshake, [Verify], signed handshake, events. Errors
// are those of [Verify].
//
// A body that cannot be parsed is no error, since the sender would only send it again: its event says that it is parked.
// A gzip body is inflated to at most inflated bytes, for parsing only; beyond that it is parked too.
func Accept(src *Verifier, req Request, now time.Time, inflated int64) (a Accepted, err error) {
	c := check{v: src, req: &req, now: now}
	if reply := c.greet(); reply != nil {
		return Accepted{Reply: reply}, nil
	}
	verdict, err := Verify(src, req, now)
	if err != nil {
		return Accepted{}, err
	}
	defer func() { // a parser that fails must not fail the request: the bytes are the sender's, and proven
		if recover() != nil {
			a, err = Accepted{Verdict: verdict, Delivery: parked(&req, ParkedUnparsable)}, nil
		}
	}()
	if reply, confirm := c.shake(verdict.SecretID); reply != nil {
		return Accepted{Reply: reply, Confirm: confirm, Verdict: verdict}, nil
	}
	doc, ok := inflate(&req, inflated)
	if !ok {
		return Accepted{Verdict: verdict, Delivery: parked(&req, ParkedUnparsable)}, nil
	}
	return Accepted{Verdict: verdict, Delivery: src.split(&req, doc)}, nil
}

func parked(req *Request, why string) Delivery {
	return Delivery{Events: []Event{{Body: req.Body, Content: req.Body, Parked: why}}}
}

// inflate undoes a content encoding within a limit.
func inflate(req *Request, limit int64) ([]byte, bool) {
	switch strings.ToLower(req.Header.Get("Content-Encoding")) {
	case "", "identity":
		return req.Body, true
	case "gzip":
	default:
		return nil, false
	}
	z, err := gzip.NewReader(bytes.NewReader(req.Body))
	if err != nil {
		return nil, false
	}
	defer z.Close()
	doc, err := io.ReadAll(io.LimitReader(z, limit+1))
	return doc, err == nil && int64(len(doc)) <= limit
}
