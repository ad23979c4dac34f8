package gateway

import "time"

// Event tells of one forwarded request of a guarded route, or of one breaker that moved.
type Event struct {
	Operation string        // the route's operation without "gateway.", or ""
	Upstream  string        // the upstream's name in the Config
	Class     Class         // of a forwarded request; "" for a breaker
	Took      time.Duration // from the first attempt to the whole answer or its failure
	// Breaker is set when the upstream's breaker moved: closed, open or half_open.
	Breaker string
}

// Class is what is known of a request that was to be forwarded. The zero value of doubt is [ClassUnknown]: everything
// that is not proven to be one of the others.
type Class string

const (
	// ClassAnswered is a complete answer: status, headers and the whole body.
	ClassAnswered Class = "answered"
	// ClassNotSent is proven: no byte of the request reached an upstream that could act on it.
	ClassNotSent Class = "not_sent"
	// ClassUnknown is a request of which a byte may have arrived, without a complete answer.
	ClassUnknown Class = "sent_unknown"
)
