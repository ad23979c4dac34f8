package inbox

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idempo/idempo"
)

const (
	maxIdentity = 1024 // bytes of a source, and of an id
	maxLane     = 1024
)

// delivery is one message on its way: who it is, and what stands in its way.
type delivery struct {
	in     *Inbox
	m      Message // what the handler gets
	kept   Message // what a receipt keeps: read again, it gives the same delivery
	key    idempo.Key
	digest [sha256.Size]byte // of the body
	rkey   string            // key of its receipt
	order  Order
	ver    version

	receipt *Receipt // that Work took, or that counts its starts; nil: none
	taken   bool     // Work has it: the broker does not
	counted bool     // this start is counted in receipt already
	inPlace bool     // its caller redelivers what fails
	skipped string   // the handler said Skip, and this transaction completes it

	// of the last transaction
	ent     Entered
	run     bool      // the handler was started
	begun   time.Time // when, on the monotonic clock
	fault   *handlerError
	out     Outcome
	why     string          // it is parked
	tied    bool            // its lane has its version already
	past    bool            // it runs although a version before it did not come
	first   version         // the lowest that its lane holds, where its wait for a gap is over
	moved   map[string]bool // lanes that the handler has set
	result  idempo.Result
	claim   *idempo.Claim
	verdict verdictOf
}

// verdictOf says what follows a transaction that did not run the handler.
type verdictOf int

const (
	answered verdictOf = iota // out is the answer
	parks                     // out.Reason is why
	behind                    // it waits for its lane, or a gap
)

// parking is why a message cannot be started.
type parking struct{ reason, text string }

// accept finds out who m is. accepted says that a person let it run although its identity has another body.
func (in *Inbox) accept(m Message, accepted bool) (*delivery, *parking) {
	d := &delivery{in: in, m: m.clone(), digest: bodyDigest(m.Body)}
	e := readEvent(d.m)
	d.m.Type = cmp.Or(d.m.Type, e.kind)
	if d.m.Time.IsZero() {
		d.m.Time = e.at()
	}
	d.m.Tenant = in.tenant(m, e)
	d.kept = d.m
	d.rkey = looseKey(d.m, d.digest)
	if !validTenant(d.m.Tenant) {
		d.m.Tenant, d.kept.Tenant = in.o.Tenant, in.o.Tenant
		return d, &parking{ReasonBadID, "the tenant is not 1 to 255 bytes of UTF-8 without control characters"}
	}
	if e.bad != "" {
		return d, &parking{ReasonUnparsable, "CloudEvents: " + e.bad}
	}
	kind, p := in.identify(d, e)
	if p == nil {
		p = in.ordered(d, e)
	}
	if p != nil {
		return d, p
	}
	d.identify(kind, accepted)
	return d, nil
}

// identify is the identity of a message: the first that is present counts.
func (in *Inbox) identify(d *delivery, e event) (kind string, p *parking) {
	m := &d.m
	switch {
	case e.missing:
		m.ID = ""
	case e.idGiven:
		m.ID = e.id
		m.Source = cmp.Or(e.source, in.o.Source, m.Source)
	case m.ID != "":
		m.Source = cmp.Or(in.o.Source, m.Source)
	case in.o.Identify != nil:
		source, id := in.o.Identify(*m)
		m.ID, m.Source = id, cmp.Or(source, in.o.Source, m.Source)
	default:
		m.Source = cmp.Or(in.o.Source, m.Source)
	}
	if !blank(m.ID) {
		for name, v := range map[string]string{"id": m.ID, "source": m.Source} {
			if len(v) > maxIdentity || strings.Contains(v, "\x00") {
				return "", &parking{ReasonBadID, "the " + name + " is longer than 1024 bytes or has a NUL"}
			}
		}
		d.kept.ID, d.kept.Source = m.ID, m.Source
		return "", nil
	}
	d.kept.Source = m.Source
	m.ID = ""
	switch in.o.MissingID {
	case MissingDigest:
		sum := sha256.Sum256(fields(m.Type, string(d.digest[:])))
		m.ID = hex.EncodeToString(sum[:])
		return MissingDigest, nil
	case MissingPosition:
		if m.Position != "" && len(m.Position) <= maxIdentity {
			m.ID = m.Position
			return MissingPosition, nil
		}
	}
	return "", &parking{ReasonMissingID, fmt.Sprintf("no id, and MissingID is %s: set it to %s or %s, or have the producer send ids; then retry it",
		in.o.MissingID, MissingDigest, MissingPosition)}
}

// ordered finds lane and version.
func (in *Inbox) ordered(d *delivery, e event) *parking {
	m, o := &d.m, in.o
	if o.Order == OrderNone {
		d.order = OrderNone
		return nil
	}
	if m.Lane == "" && o.LaneOf != nil {
		m.Lane = o.LaneOf(*m)
	}
	m.Lane = cmp.Or(m.Lane, e.partitionkey, m.Partition)
	if m.Version == "" && o.VersionOf != nil {
		m.Version = o.VersionOf(*m)
	}
	m.Version = cmp.Or(m.Version, e.sequence)
	d.kept.Lane, d.kept.Version = m.Lane, m.Version
	d.order = cmp.Or(o.Order, OrderSerial)
	if len(m.Lane) > maxLane {
		d.kept.Lane = ""
		return &parking{ReasonUnparsable, "the lane is longer than 1024 bytes"}
	}
	if d.order == OrderSerial {
		if m.Lane == "" {
			d.order = OrderNone
		}
		d.ver, _ = parseVersion(m.Version, true) // counts where SetVersion has given the lane one
		return nil
	}
	if m.Lane == "" {
		return &parking{ReasonUnparsable, fmt.Sprintf("no lane, which order %s needs", d.order)}
	}
	v, ok := parseVersion(m.Version, d.order == OrderLatest)
	if !ok {
		return &parking{ReasonUnparsable, fmt.Sprintf("the version cannot be compared, which order %s needs", d.order)}
	}
	d.ver = v
	m.Version, d.kept.Version = string(v), string(v) // as the store compares it
	return nil
}

// identify makes the keys of d. kind is how an identity was made where the message has none.
func (d *delivery) identify(kind string, accepted bool) {
	id := fields(d.m.Source, d.m.ID)
	if kind != "" {
		id = fields(d.m.Source, d.m.ID, kind[:1]) // never the same as one that a message could bring
	}
	if accepted {
		sum := sha256.Sum256(append(id, d.digest[:]...))
		id = fields(ReasonAccepted, "", string(sum[:]))
	}
	d.key = idempo.Key{Tenant: d.m.Tenant, Operation: "inbox:" + d.in.o.Subscriber, ID: string(id)}
	d.rkey = digestOf("message", string(id)) // see ReceiptKey
}

func (in *Inbox) tenant(m Message, e event) string {
	switch {
	case m.Tenant != "":
		return m.Tenant
	case in.o.TenantFunc != nil:
		return cmp.Or(in.o.TenantFunc(m), in.o.Tenant)
	case in.o.TrustTenantHeader:
		return cmp.Or(e.tenant, in.o.Tenant)
	}
	return in.o.Tenant
}

// validTenant is the rule of idempo.Key.
func validTenant(s string) bool {
	return s != "" && len(s) <= 255 && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f })
}

// looseKey is the receipt's key of a message without a usable identity: the same again only for what is certainly the
// same delivery.
func looseKey(m Message, body [sha256.Size]byte) string {
	if m.Position == "" {
		return digestOf("loose", rand.Text(), string(body[:]))
	}
	return digestOf("position", m.Source, m.Position, m.ID, string(body[:]))
}

// conflictKey is the receipt's key of another body under a known identity.
func (d *delivery) conflictKey() string {
	return digestOf("conflict", d.key.ID, string(d.digest[:]))
}

// input is what the engine compares.
func (d *delivery) input() [][]byte {
	switch {
	case d.in.o.Fingerprint == FingerprintOff:
		return [][]byte{[]byte("any")}
	case d.m.Body == nil:
		return [][]byte{[]byte("none")}
	}
	return [][]byte{[]byte("body"), d.m.Body}
}

// bodyDigest tells nil from empty.
func bodyDigest(b []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	if b == nil {
		h.Write([]byte("none"))
	} else {
		h.Write([]byte("body"))
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
}

func digestOf(parts ...string) string {
	sum := sha256.Sum256(fields(parts...))
	return string(sum[:])
}

// fields joins parts, each led by its length, so that no two splits give the same bytes.
func fields(parts ...string) []byte {
	n := 0
	for _, p := range parts {
		n += 4 + len(p)
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p))) //nolint:gosec // far below 4 GiB
		b = append(b, p...)
	}
	return b
}
