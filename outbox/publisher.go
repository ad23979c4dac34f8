package outbox

import (
	"context"
	"fmt"
	"time"
)

// Publisher sends events to a broker. Anyone may implement it; contrib and httppublish hold those of idempo.
type Publisher interface {
	// Publish hands p.Events over and says by p.Done what became of each: nil, ErrDuplicate, or an error marked by Refused,
	// NoRoute, Unavailable, Unanswered, Later or After; an unmarked one is a failure that counts. nil means that the
	// destination itself confirmed the event: never that it was written to a socket, flushed or buffered.
	//
	// Done is called once for every event, from any goroutine, before or after Publish returns, in any order. Publish
	// should not wait for answers, so that many are in flight; it may block while it cannot take more (the relay bounds
	// what is in flight), and returns soon after ctx has ended. Events of one key come one at a time, unless the Publisher
	// is an Orderer. One call runs at a time per relay.
	//
	// ctx is the sending's lifetime, not a time-out: it ends when the relay has stopped and its DrainTimeout is over, or
	// has lost its partitions. Do not cancel what the broker may have taken. An event that is not done within
	// RelayOptions.PublishTimeout is taken for unanswered and sent again; a Done after that is ignored, and logged.
	// The relay owns the events, and changes nothing in them; a Publisher must not either, and may keep them until Done.
	Publish(ctx context.Context, p PublishParams)
}

// PublishParams is a batch of events.
type PublishParams struct {
	Events []Delivery
	// Done says what became of Events[i].
	Done func(i int, err error)
}

// Orderer is a Publisher that keeps order within a key by itself, also on failure (Kafka's idempotent producer): when an
// event is not done, no later one of its key that was handed over before is done either. Then several of one key may be
// in flight. Without it each waits for the one before.
type Orderer interface {
	KeepsOrder() bool
}

// Windower is a Publisher whose broker drops repeats of an id for a while. A repeat past that is counted by the relay and
// warned of. 0: it does not.
type Windower interface {
	DedupWindow() time.Duration
}

// Destiner is a Publisher with several destinations, each of which can be away by itself. Without it all topics have one.
type Destiner interface {
	// Destination names where a topic goes, the same text for the same place. It is never shown.
	Destination(topic string) string
}

// Delivery is an event on its way.
type Delivery struct {
	Event
	Trace Trace
	// Seq rises with every event of a key.
	Seq int64
	// BrokerID is what the broker may drop repeats by (Nats-Msg-Id, x-deduplication-header): the event's id, and with a
	// Replay a fresh one, or the broker would swallow it.
	BrokerID string
	// Replay is not empty where an operator sends the event once more, the same text for the same order.
	Replay string
}

// Attributes returns the CloudEvents attributes of the event, names without the prefix of a binding: id, source,
// specversion, type, time, then, where there is one, subject and partitionkey (both the key) and datacontenttype, then the
// extensions sequence, topic, tenant and, where there is one, keyref.
func (d *Delivery) Attributes() [][2]string {
	a := make([][2]string, 0, 12)
	a = append(a, [2]string{"id", d.ID}, [2]string{"source", d.Source}, [2]string{"specversion", "1.0"}, [2]string{"type", d.Type},
		[2]string{"time", d.Time.UTC().Format(time.RFC3339Nano)})
	if d.Key != "" {
		a = append(a, [2]string{"subject", d.Key}, [2]string{"partitionkey", d.Key})
	}
	if d.ContentType != "" {
		a = append(a, [2]string{"datacontenttype", d.ContentType})
	}
	a = append(a, [2]string{"sequence", fmt.Sprintf("%020d", d.Seq)}, [2]string{"topic", d.Topic}, [2]string{"tenant", d.Tenant})
	if d.Trace.KeyRef != "" {
		a = append(a, [2]string{"keyref", d.Trace.KeyRef})
	}
	return a
}

// Extra returns the headers that follow the attributes in every binding: the event's own, then traceparent, tracestate,
// correlation-id and idempo-replay where they are set.
func (d *Delivery) Extra() [][2]string {
	h := make([][2]string, 0, len(d.Headers)+4)
	h = append(h, d.Headers...)
	for _, one := range [][2]string{{"traceparent", d.Trace.Parent}, {"tracestate", d.Trace.State}, {"correlation-id", d.Trace.Correlation}, {"idempo-replay", d.Replay}} {
		if one[1] != "" {
			h = append(h, one)
		}
	}
	return h
}
