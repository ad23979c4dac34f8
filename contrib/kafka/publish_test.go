package idemkafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	idemkafka "github.com/idempo/idempo/contrib/kafka"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
)

// client is one over the link.
func (b *broker) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.seeds...), kgo.Dialer(b.link.DialContext), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func (b *broker) Publisher(t testing.TB) (outbox.Publisher, func()) {
	t.Helper()
	cl := b.client(t, kgo.MaxBufferedRecords(500))
	p, err := idemkafka.NewPublisher(cl, idemkafka.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p, cl.Close
}

func (b *broker) Topic() string { return b.topic }

func (b *broker) Link() *idempotest.Link { return &b.link }

// records reads everything that is stored.
func (b *broker) records(t testing.TB) (got []*kgo.Record) {
	t.Helper()
	ends, err := b.admin.ListEndOffsets(t.Context(), b.topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	for n, o := range ends[b.topic] {
		if o.Offset > 0 {
			left[n] = o.Offset
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.ConsumeTopics(b.topic), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for len(left) > 0 {
		fetches := cl.PollFetches(t.Context())
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got = append(got, r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return got
}

func (b *broker) Received(t testing.TB) (got []inbox.Message) {
	t.Helper()
	for _, r := range b.records(t) {
		m := inbox.Message{Body: r.Value}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, [2]string{h.Key, string(h.Value)})
		}
		got = append(got, m)
	}
	return got
}

func TestPublisher(t *testing.T) {
	t.Parallel()
	idempotest.RunPublisher(t, func(t *testing.T) idempotest.Destination { return newBroker(t, seeds(t)) })
}

func event(n int, topic, key string) outbox.Delivery {
	id := outbox.IDFor("n", fmt.Sprint(n))
	return outbox.Delivery{Seq: int64(n), BrokerID: id, Event: outbox.Event{ID: id, Source: "/shop", Topic: topic, Key: key, Type: "T", Tenant: "default", Payload: []byte("x")}}
}

// one publishes a single event and returns what was told of it.
func one(t *testing.T, p outbox.Publisher, d outbox.Delivery) error {
	t.Helper()
	told := make(chan error, 1)
	p.Publish(t.Context(), outbox.PublishParams{Events: []outbox.Delivery{d}, Done: func(_ int, err error) { told <- err }})
	select {
	case err := <-told:
		return err
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
		return nil
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B1] options by which records could be lost, given up or overtaken are named", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		for say, opts := range map[string][]kgo.Opt{
			"acks=all":                               {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
			"leave kgo.DisableIdempotentWrite":       {kgo.DisableIdempotentWrite()},
			"kgo.AllowIdempotentProduceCancellation": {kgo.AllowIdempotentProduceCancellation()},
			"after 5 retries":                        {kgo.RecordRetries(5)},
			"after 30s":                              {kgo.RecordDeliveryTimeout(30 * time.Second)},
			"kgo.TransactionalID":                    {kgo.TransactionalID("x")},
			"one key to one partition":               {kgo.RecordPartitioner(kgo.RoundRobinPartitioner())},
			"set kgo.RecordPartitioner":              {kgo.RecordPartitioner(kgo.ManualPartitioner())},
		} {
			cl := b.client(t, opts...)
			_, err := idemkafka.NewPublisher(cl, idemkafka.PublisherOptions{})
			if !errors.Is(err, idemkafka.ErrUnsafeClient) || !strings.Contains(err.Error(), say) {
				t.Errorf("%v; want %s", err, say)
			}
			cl.Close()
		}
		cl := b.client(t, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(1))
		defer cl.Close()
		_, err := idemkafka.NewPublisher(cl, idemkafka.PublisherOptions{})
		for _, say := range []string{"RequiredAcks", "DisableIdempotentWrite", "RecordRetries"} {
			if err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s is not named: %v", say, err)
			}
		}
		safe := b.client(t, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
		defer safe.Close()
		if _, err := idemkafka.NewPublisher(safe, idemkafka.PublisherOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("[messages/B2] the relay stops while records are in flight: none is cancelled, none is taken for sent before its promise", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		p, stop := b.Publisher(t)
		defer stop()
		if err := one(t, p, event(0, b.topic, "")); err != nil {
			t.Fatal(err)
		}
		b.link.Away(true)
		ctx, cancel := context.WithCancel(t.Context())
		const n = 100
		events, told := make([]outbox.Delivery, n), make(chan error, n)
		for i := range events {
			events[i] = event(i+1, b.topic, fmt.Sprint("k", i))
		}
		p.Publish(ctx, outbox.PublishParams{Events: events, Done: func(_ int, err error) { told <- err }})
		cancel()
		dials := b.link.Dials()
		until(t, "the client has tried in vain", func() bool { return b.link.Dials() > dials+3 })
		if len(told) != 0 {
			t.Errorf("%d were told of while the link is away; the first: %v", len(told), <-told)
		}
		b.link.Away(false)
		for range n {
			if err := <-told; err != nil {
				t.Error(err)
			}
		}
		if got := b.records(t); len(got) != n+1 {
			t.Errorf("%d are stored", len(got))
		}
	})
	t.Run("[messages/B4] the record's key is the event's, and decides the partition in every process; without one they are spread", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		for round := range 2 {
			p, stop := b.Publisher(t)
			for i := range 60 {
				if err := one(t, p, event(100*round+i, b.topic, fmt.Sprint("k", i%10))); err != nil {
					t.Fatal(err)
				}
				if err := one(t, p, event(1000+100*round+i, b.topic, "")); err != nil {
					t.Fatal(err)
				}
			}
			stop()
		}
		places, keyless := map[string]map[int32]bool{}, map[int32]bool{}
		for _, r := range b.records(t) {
			if r.Key == nil {
				keyless[r.Partition] = true
				continue
			}
			if places[string(r.Key)] == nil {
				places[string(r.Key)] = map[int32]bool{}
			}
			places[string(r.Key)][r.Partition] = true
		}
		if len(places) != 10 || len(keyless) < 2 {
			t.Errorf("%d keys; without a key in %v", len(places), keyless)
		}
		for key, at := range places {
			if len(at) != 1 {
				t.Errorf("%s is in partitions %v", key, at)
			}
		}
	})
	t.Run("a nil payload is a tombstone, an empty one is empty; too large is refused", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		p, stop := b.Publisher(t)
		defer stop()
		none, empty, large := event(1, b.topic, "k"), event(2, b.topic, "k"), event(3, b.topic, "k")
		none.Payload, empty.Payload, large.Payload = nil, []byte{}, make([]byte, 8<<20)
		if err := errors.Join(one(t, p, none), one(t, p, empty)); err != nil {
			t.Error(err)
		}
		if err := one(t, p, large); outbox.ClassOf(err) != outbox.ClassRefused {
			t.Error(err)
		}
		if got := b.records(t); len(got) != 2 || got[0].Value != nil || got[1].Value == nil {
			t.Errorf("%+v", got)
		}
	})
}

func TestOutage(t *testing.T) {
	t.Run("[messages/B3] the link is away under load, both directions", func(t *testing.T) {
		at := seeds(t)
		idempotest.RunPublisherOutage(t, newBroker(t, at), nil)
		b := newBroker(t, at)
		idempotest.RunConsumerOutage(t, b, b.link.Away)
	})
	t.Run("[messages/B3] the topic is made late", func(t *testing.T) {
		b := newBroker(t, seeds(t))
		p, stop := b.Publisher(t)
		defer stop()
		late := event(1, b.topic+"-late", "k")
		if err := one(t, p, late); outbox.ClassOf(err) != outbox.ClassNoRoute {
			t.Error(err)
		}
		if _, err := b.admin.CreateTopic(t.Context(), 3, 1, nil, late.Topic); err != nil {
			t.Fatal(err)
		}
		until(t, "it goes out", func() bool { return one(t, p, late) == nil })
	})
	t.Run("[messages/B3] leaders move under load, both directions", func(t *testing.T) {
		c := fake(t)
		move := func(topic string) func(bool) {
			n := int32(0)
			return func(bool) {
				for part := range int32(3) {
					if err := c.MoveTopicPartition(topic, part, (part+n)%3); err != nil {
						t.Error(err)
					}
				}
				n++
			}
		}
		b := newBroker(t, c.ListenAddrs())
		idempotest.RunPublisherOutage(t, b, move(b.topic))
		b = newBroker(t, c.ListenAddrs())
		idempotest.RunConsumerOutage(t, b, move(b.topic))
	})
	t.Run("[messages/B3] all brokers stop and start again under load, both directions", func(t *testing.T) {
		ports := []int{freePort(t), freePort(t), freePort(t)}
		opts := []kfake.Opt{kfake.Ports(ports...), kfake.NumBrokers(3), kfake.DataDir(t.TempDir()), kfake.SyncWrites(), kfake.GroupMinSessionTimeout(100 * time.Millisecond)}
		var c *kfake.Cluster
		start := func() {
			var err error
			if c, err = kfake.NewCluster(opts...); err != nil {
				t.Fatal(err)
			}
		}
		start()
		t.Cleanup(func() { c.Close() })
		away := func(away bool) {
			if away {
				c.Close()
				return
			}
			start()
		}
		b := newBroker(t, c.ListenAddrs())
		idempotest.RunPublisherOutage(t, b, away)
		b = newBroker(t, c.ListenAddrs())
		idempotest.RunConsumerOutage(t, b, away)
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
