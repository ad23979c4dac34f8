package idemkafka_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	idemkafka "github.com/idempo/idempo/contrib/kafka"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
)

// seeds returns where the Kafka of a test is: what IDEMPO_TEST_KAFKA names, or a cluster of three brokers of its own.
func seeds(t *testing.T) []string {
	t.Helper()
	if at := os.Getenv("IDEMPO_TEST_KAFKA"); at != "" {
		return strings.Split(at, ",")
	}
	return fake(t).ListenAddrs()
}

func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.GroupMinSessionTimeout(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// broker is a topic of the test's own with three partitions.
type broker struct {
	seeds  []string
	topic  string
	link   idempotest.Link
	own    *kgo.Client
	manual *kgo.Client // names the partition itself
	admin  *kadm.Client
}

func newBroker(t *testing.T, seeds []string) *broker {
	t.Helper()
	b := &broker{seeds: seeds, topic: "t-" + strings.ToLower(rand.Text()[:12])}
	var err error
	if b.own, err = kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(b.topic)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.own.Close)
	if b.manual, err = kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(b.topic), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.manual.Close)
	b.admin = kadm.NewClient(b.own)
	if _, err := b.admin.CreateTopic(t.Context(), 3, 1, nil, b.topic); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = b.admin.DeleteTopic(context.WithoutCancel(t.Context()), b.topic) })
	return b
}

// opts are those of a safe consumer over the link that Cut breaks.
func (b *broker) opts(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(b.seeds...), kgo.Dialer(b.link.DialContext), kgo.ConsumerGroup(b.topic), kgo.ConsumeTopics(b.topic), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100 * time.Millisecond), kgo.HeartbeatInterval(100 * time.Millisecond),
	}, more...)
}

func (b *broker) Publish(t testing.TB, m inbox.Message) {
	t.Helper()
	r := &kgo.Record{Value: m.Body}
	if m.Lane != "" {
		r.Key = []byte(m.Lane)
	}
	if m.ID != "" {
		r.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: []byte(m.ID)}, {Key: "ce_source", Value: []byte("/test")}}
	}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	if err := b.own.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) Consume(ctx context.Context, in *inbox.Inbox, h inbox.Handler) error {
	return idemkafka.Consume(ctx, b.opts(), in, h, idemkafka.Options{CommitEvery: 50 * time.Millisecond, LagEvery: 50 * time.Millisecond})
}

func (b *broker) Waiting(t testing.TB) int {
	t.Helper()
	ends, err := b.admin.ListEndOffsets(t.Context(), b.topic)
	if err != nil {
		t.Fatal(err)
	}
	offsets, err := b.admin.FetchOffsets(t.Context(), b.topic)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		n += o.Offset
		if at, ok := offsets.Lookup(o.Topic, o.Partition); ok {
			n -= at.At
		}
	})
	return int(n)
}

func (b *broker) Taken(testing.TB) int { return -1 }

func (b *broker) Cut(testing.TB) { b.link.Cut() }

func TestConsumer(t *testing.T) {
	t.Parallel()
	idempotest.RunConsumer(t, func(t *testing.T) idempotest.Broker { return newBroker(t, seeds(t)) })
}
