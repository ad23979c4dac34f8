package outbox

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // UUIDv5 is made of it; nothing is protected by it
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Event is something that happened, to be published if and only if the transaction that tells of it commits.
type Event struct {
	// ID is the event's identity for ever, through retries, takeovers and replays: UUID text. "": a UUIDv7 is made. IDFor
	// makes one that is the same for the same name.
	ID string
	// Source says where the event comes from, a URI reference. "": Options.Source.
	Source string
	// Topic is where it goes: 1 to 200 of [A-Za-z0-9._-] without an empty part between dots. Required.
	Topic string
	// Key is what order is kept within: at most 512 bytes of UTF-8 without control characters. "": no order.
	Key string
	// Type says what happened. Required, at most 255 bytes.
	Type string
	// Tenant the event belongs to. "": Options.Tenant.
	Tenant string
	// ContentType of the payload. "": none is told.
	ContentType string
	// Payload is any bytes; they are neither read nor changed. Nil differs from empty: it is a tombstone where the broker
	// has such.
	Payload []byte
	// Headers go along: name and value, repeated names in order. Names are HTTP tokens; those of idempo, CloudEvents and
	// tracing are reserved.
	Headers [][2]string
	// Time is when it was appended, on the store's clock. Append ignores what stands here.
	Time time.Time
}

// size is what the event costs in memory and on the wire, about.
func (e *Event) size() int {
	n := len(e.Payload) + len(e.Key) + len(e.Topic) + len(e.Type) + len(e.Source) + len(e.Tenant) + 200
	for _, h := range e.Headers {
		n += len(h[0]) + len(h[1])
	}
	return n
}

// Trace is what an event carries of the call that appended it. Empty fields are not published.
type Trace struct {
	Parent      string // traceparent
	State       string // tracestate
	Correlation string // published as the header correlation-id
	KeyRef      string // key reference of the claim it was appended in: the CloudEvents extension keyref
}

// Partitions is how many parts the keys of a group are split into. A relay leases whole parts.
const Partitions = 64

// PartitionOf returns the part that an event belongs to, 0 to Partitions-1: the low six bits of the first byte of
// SHA-256 over the length of the tenant in bytes as decimal, a colon, the tenant and the key; for an event without a key
// over its id.
func PartitionOf(tenant, key, id string) int {
	text := id
	if key != "" {
		text = strconv.Itoa(len(tenant)) + ":" + tenant + key
	}
	sum := sha256.Sum256([]byte(text))
	return int(sum[0]) % Partitions
}

// IDFor returns the id of the event called name within namespace (a UUID, or any text), a UUIDv5: the same two give the
// same id, so that whoever repeats the call appends the same event.
func IDFor(namespace, name string) string {
	space, ok := parseUUID(namespace)
	if !ok {
		space = named([16]byte{}, namespace)
	}
	return uuidText(named(space, name))
}

// named is the UUIDv5 of name in space.
func named(space [16]byte, name string) (u [16]byte) {
	h := sha1.New() //nolint:gosec // see the import
	_, _ = h.Write(space[:])
	_, _ = h.Write([]byte(name))
	copy(u[:], h.Sum(nil))
	u[6], u[8] = u[6]&0x0f|0x50, u[8]&0x3f|0x80
	return u
}

// newID is a fresh UUIDv7.
func newID(now time.Time) string {
	var u [16]byte
	_, _ = rand.Read(u[6:]) // never fails since Go 1.24
	ms := now.UnixMilli()
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6], u[8] = u[6]&0x0f|0x70, u[8]&0x3f|0x80
	return uuidText(u)
}

func uuidText(u [16]byte) string {
	var b [36]byte
	hex.Encode(b[:8], u[:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:], u[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// parseUUID reads 8-4-4-4-12 hex digits in either case.
func parseUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	_, err := hex.Decode(u[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:]))
	return u, err == nil
}
