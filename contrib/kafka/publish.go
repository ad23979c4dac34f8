package idemkafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idempo/idempo/outbox"
)

// PublisherOptions of a Publisher. The zero value works.
type PublisherOptions struct {
	// Prefix leads the event's topic in the name of Kafka's.
	Prefix string
}

// Publisher publishes the events of an outbox to Kafka. It is safe for concurrent use.
//
// It is no outbox.Orderer: a record that the broker refuses for itself, such as one that is too large, does not take the
// later ones of its key with it.
type Publisher struct {
	client *kgo.Client
	o      PublisherOptions
	room   chan struct{} // a place for each record in the client's buffer
}

// NewPublisher returns a publisher over client, which stays its maker's to close. It returns ErrUnsafeClient, naming each
// option, where records could be lost, reordered or given up: acks other than all, no idempotent writes, their
// cancellation, a limit of retries or of time, a transaction, a partitioner that ignores keys.
func NewPublisher(client *kgo.Client, o PublisherOptions) (*Publisher, error) {
	if err := safeProducer(client); err != nil {
		return nil, err
	}
	buffer, _ := client.OptValue(kgo.MaxBufferedRecords).(int64)
	room := min(max(buffer*3/4, 1), 10_000) // the client counts a record for a moment longer than until its promise
	return &Publisher{client, o, make(chan struct{}, room)}, nil
}

// Publish implements outbox.Publisher. An event is done when the promise of its own record has no error, that is when all
// in-sync replicas have it. What was handed over is not cancelled with ctx [franz-go#1217]: the client goes on as long as
// it lives. An unknown topic is outbox.NoRoute. The record's key is the event's, nil without one; its value is the
// payload, nil for a tombstone; CloudEvents attributes are headers with ce_.
func (p *Publisher) Publish(ctx context.Context, b outbox.PublishParams) {
	for i := range b.Events {
		select {
		case p.room <- struct{}{}:
		case <-ctx.Done():
			b.Done(i, outbox.Unavailable(context.Cause(ctx)))
			continue
		}
		p.client.TryProduce(context.WithoutCancel(ctx), p.record(&b.Events[i]), func(_ *kgo.Record, err error) {
			<-p.room
			b.Done(i, classify(err))
		})
	}
}

// classify says what is known of a failure.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InvalidTopicException):
		return outbox.NoRoute(fmt.Errorf("idemkafka: %w", err))
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.InvalidTimestamp):
		return outbox.Refused(fmt.Errorf("idemkafka: %w", err))
	case errors.Is(err, kgo.ErrMaxBuffered), errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kerr.ThrottlingQuotaExceeded):
		return outbox.Unavailable(fmt.Errorf("idemkafka: %w", err))
	case kerr.IsRetriable(err), errors.Is(err, context.Canceled):
		return outbox.Unanswered(fmt.Errorf("idemkafka: %w; the record may be stored", err))
	}
	return fmt.Errorf("idemkafka: %w", err)
}

// record is an event as a CloudEvent in binary mode.
func (p *Publisher) record(d *outbox.Delivery) *kgo.Record {
	r := &kgo.Record{Topic: p.o.Prefix + d.Topic, Value: d.Payload}
	if d.Key != "" {
		r.Key = []byte(d.Key)
	}
	attributes, extra := d.Attributes(), d.Extra()
	r.Headers = make([]kgo.RecordHeader, 0, len(attributes)+len(extra))
	for _, a := range attributes {
		name := "ce_" + a[0]
		if a[0] == "datacontenttype" {
			name = "content-type"
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(a[1])})
	}
	for _, h := range extra {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	return r
}

// safeProducer refuses options by which a record that was taken could be lost, given up or overtaken.
func safeProducer(cl *kgo.Client) error {
	var bad []string
	say := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	if acks := cl.OptValue(kgo.RequiredAcks); acks != kgo.AllISRAcks() {
		say("must use acks=all; set kgo.RequiredAcks(kgo.AllISRAcks())")
	}
	if cl.OptValue(kgo.DisableIdempotentWrite) == true {
		say("must write idempotently; leave kgo.DisableIdempotentWrite out")
	}
	if cl.OptValue(kgo.AllowIdempotentProduceCancellation) == true {
		say("must not cancel what may be stored; leave kgo.AllowIdempotentProduceCancellation out")
	}
	if n, ok := cl.OptValue(kgo.RecordRetries).(int64); ok && n < math.MaxInt32 {
		say("must not give up after %d retries; leave kgo.RecordRetries out", n)
	}
	if d, ok := cl.OptValue(kgo.RecordDeliveryTimeout).(time.Duration); ok && d > 0 {
		say("must not give up after %v; leave kgo.RecordDeliveryTimeout out", d)
	}
	if id, _ := cl.OptValue(kgo.TransactionalID).(string); id != "" {
		say("must not be transactional; leave kgo.TransactionalID out")
	}
	if p, ok := cl.OptValue(kgo.RecordPartitioner).(kgo.Partitioner); ok && p != nil && !byKey(p) {
		say("must send one key to one partition; set kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))")
	}
	return unsafe("producer", bad)
}

// byKey reports that a partitioner decides by the key, and the same each time.
func byKey(p kgo.Partitioner) bool {
	topic, places := p.ForTopic("t"), map[int]bool{}
	at := topic.Partition
	if t, ok := topic.(kgo.TopicBackupPartitioner); ok { // it looks at the buffers, except for keys
		at = func(r *kgo.Record, n int) int { return t.PartitionByBackup(r, n, nil) }
	}
	for i := range 16 {
		r := &kgo.Record{Topic: "t", Key: fmt.Append(nil, "key ", i)}
		if !topic.RequiresConsistency(r) {
			return false
		}
		first := at(r, 1<<20)
		if at(r, 1<<20) != first {
			return false
		}
		places[first] = true
	}
	return len(places) > 1
}
