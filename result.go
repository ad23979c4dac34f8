package idempo

import (
	"bytes"
	"slices"
	"time"
)

// Forever as Operation.Tombstone keeps tombstones without end. It is legal nowhere else.
const Forever time.Duration = 1<<63 - 1

// Result is the stable answer of one intent: what every later caller of the key receives.
//
// Status and Header mean what the surface says (HTTP: status code and kept headers, in order). A nil Body is "none"
// and differs from an empty one. A Failing result is final and answered again, but says that nothing was done: in an
// engine's own transaction the effects of the attempt are undone and only the result is kept.
type Result struct {
	Status   int
	Header   [][2]string
	Body     []byte
	Failing  bool
	Resource Resource
}

// Resource points at what an intent made: a type and an identifier, each up to 255 bytes. It outlives the result.
type Resource struct{ Type, ID string }

// IsZero reports whether r points at nothing.
func (r Resource) IsZero() bool { return r == Resource{} }

// clone returns a copy that shares no memory with r.
func (r Result) clone() Result {
	r.Header = slices.Clone(r.Header)
	r.Body = bytes.Clone(r.Body)
	return r
}

// Equal reports whether r and o are the same answer, byte for byte; nil and empty bodies differ.
func (r Result) Equal(o Result) bool {
	return r.Status == o.Status && r.Failing == o.Failing && r.Resource == o.Resource &&
		(r.Body == nil) == (o.Body == nil) && bytes.Equal(r.Body, o.Body) && slices.Equal(r.Header, o.Header)
}
