package idemkafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idempo/idempo"
	idemkafka "github.com/idempo/idempo/contrib/kafka"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// store counts the writes of marks.
type store struct {
	*memstore.Store
	marks atomic.Int64
}

func (s *store) Inbox() inbox.Store { return counted{s.Store.Inbox(), s} }

type counted struct {
	inbox.Store
	s *store
}

func (c counted) Leave(ctx context.Context, p inbox.LeaveParams) error {
	if strings.HasSuffix(p.Subscriber, "/marks") {
		c.s.marks.Add(1)
	}
	return c.Store.Leave(ctx, p)
}

func newStore() *store { return &store{Store: memstore.New(memstore.Options{})} }

// member is one process of the group.
type member struct {
	in   *inbox.Inbox
	stop func()
	end  chan error
}

// join starts a member over s. All of one test share the store.
func (b *broker) join(t *testing.T, s idempo.Store, l *idempotest.Link, o inbox.Options, h inbox.Handler, more ...kgo.Opt) *member {
	t.Helper()
	o.Subscriber, o.BackoffBase, o.BackoffMax, o.Poll = "billing", time.Millisecond, time.Millisecond, 5*time.Millisecond
	in, err := inbox.New(idempotest.EngineWith(t, s, idempo.Config{}), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	m := &member{in: in, stop: stop, end: make(chan error, 1)}
	opts := append(b.opts(kgo.Dialer(l.DialContext), kgo.SessionTimeout(time.Second)), more...)
	go func() {
		m.end <- idemkafka.Consume(ctx, opts, in, h, idemkafka.Options{CommitEvery: 20 * time.Millisecond, LagEvery: 20 * time.Millisecond})
	}()
	return m
}

// leave stops the member and waits for its end.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.stop()
	if err := <-m.end; err != nil {
		t.Error(err)
	}
}

// until waits for done.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-limit:
			t.Fatalf("it takes too long until %s", what)
		case <-tick.C:
		}
	}
}

// starts notes which handlers began, and with which attempt.
type starts struct {
	mu       sync.Mutex
	attempts map[string][]int
}

func (s *starts) add(m inbox.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts == nil {
		s.attempts = map[string][]int{}
	}
	s.attempts[m.ID] = append(s.attempts[m.ID], m.Attempt)
}

func (s *starts) of(id string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[id]
}

func TestRebalance(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B6] a partition is taken away while one handler runs: it ends, its offset is committed, nothing runs twice", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		var ledger idempotest.Ledger
		var began starts
		const n = 60
		for i := range n {
			b.Publish(t, inbox.Message{ID: fmt.Sprint("m", i), Lane: fmt.Sprint("lane ", i%7)})
		}
		s := newStore()
		open := make(chan struct{})
		var running atomic.Int64
		slow := func(ctx context.Context, m inbox.Message) error {
			began.add(m)
			running.Add(1)
			select {
			case <-open:
			case <-ctx.Done():
				return ctx.Err()
			}
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		}
		var one, two idempotest.Link
		first := b.join(t, s, &one, inbox.Options{Workers: 3}, slow)
		until(t, "handlers run", func() bool { return running.Load() >= 3 })
		second := b.join(t, s, &two, inbox.Options{}, func(ctx context.Context, m inbox.Message) error {
			began.add(m)
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		})
		until(t, "the second has joined", func() bool { return two.Dials() > 2 })
		close(open)
		until(t, "all is handled", func() bool { return ledger.Count("m59") > 0 && b.Waiting(t) == 0 })
		first.leave(t)
		second.leave(t)
		for i := range n {
			id := fmt.Sprint("m", i)
			ledger.Want(t, id, 1)
			if a := began.of(id); len(a) != 1 {
				t.Errorf("%s was started %d times", id, len(a))
			}
		}
	})
	t.Run("[messages/B6] handled out of order, and one never ends: it rolls back, only the offsets before it are committed", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		var ledger idempotest.Ledger
		for i := range 10 {
			b.publishTo(t, 0, fmt.Sprint("m", i))
		}
		s := newStore()
		var link idempotest.Link
		first := b.join(t, s, &link, inbox.Options{DrainTimeout: 50 * time.Millisecond}, func(ctx context.Context, m inbox.Message) error {
			ledger.AddOnCommit(ctx, m.ID)
			if m.ID == "m4" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		rest := []string{"m0", "m1", "m2", "m3", "m5", "m6", "m7", "m8", "m9"}
		until(t, "the others are handled", func() bool { return all(&ledger, rest...) && b.Waiting(t) == 6 })
		first.leave(t)
		if n := b.Waiting(t); n != 6 || ledger.Count("m4") != 0 {
			t.Errorf("%d are not committed, %d effects of the one that rolled back", n, ledger.Count("m4"))
		}
		var again starts
		second := b.join(t, s, &link, inbox.Options{}, func(ctx context.Context, m inbox.Message) error {
			again.add(m)
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		})
		until(t, "all is committed", func() bool { return b.Waiting(t) == 0 })
		second.leave(t)
		for i := range 10 {
			ledger.Want(t, fmt.Sprint("m", i), 1)
		}
		if a := again.of("m4"); len(a) != 1 || len(again.attempts) != 1 {
			t.Errorf("started again: %v", again.attempts)
		}
	})
	t.Run("[messages/B6] an owner that was frozen past its session commits nothing more", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		var ledger idempotest.Ledger
		for i := range 5 {
			b.publishTo(t, 0, fmt.Sprint("m", i))
		}
		s := newStore()
		var frozen, link idempotest.Link
		began, open := make(chan struct{}, 10), make(chan struct{})
		o, soon := inbox.Options{DrainTimeout: 2 * time.Second, Workers: 2}, kgo.RebalanceTimeout(3*time.Second)
		old := b.join(t, s, &frozen, o, func(ctx context.Context, m inbox.Message) error {
			if began <- struct{}{}; m.ID == "m0" {
				<-open
			}
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		}, soon)
		<-began
		frozen.Away(true)
		fresh := b.join(t, s, &link, o, func(ctx context.Context, m inbox.Message) error {
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		}, soon)
		until(t, "the new owner is there", func() bool { return len(fresh.in.Lag()) == 3 })
		until(t, "what the old one does not hold is handled", func() bool { return all(&ledger, "m1", "m2", "m3", "m4") })
		if n := b.Waiting(t); n != 5 { // the first runs elsewhere: the prefix is empty
			t.Errorf("%d are waiting", n)
		}
		frozen.Away(false)
		close(open)
		until(t, "all is committed", func() bool { return b.Waiting(t) == 0 })
		old.leave(t)
		fresh.leave(t)
		if n := b.Waiting(t); n != 0 {
			t.Errorf("%d are waiting again: an offset went back", n)
		}
		for i := range 5 {
			ledger.Want(t, fmt.Sprint("m", i), 1)
		}
	})
}

func all(l *idempotest.Ledger, ids ...string) bool {
	for _, id := range ids {
		if l.Count(id) == 0 {
			return false
		}
	}
	return true
}

func TestMark(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B7, B15] one write per batch; what stands before the mark found at the start is redelivered, the rest certainly first", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		const n = 400
		for i := range n {
			b.publishTo(t, 0, fmt.Sprint("m", i))
		}
		s := newStore()
		var ledger idempotest.Ledger
		var began starts
		var dead, link idempotest.Link
		taken := make(chan struct{}, n)
		// A process that is killed in its handlers: it never hears of anything again.
		killed := b.join(t, s, &dead, inbox.Options{Workers: 8, MaxInFlight: 64, DrainTimeout: time.Millisecond}, func(ctx context.Context, m inbox.Message) error {
			began.add(m)
			taken <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		for range 8 {
			<-taken
		}
		dead.Away(true)
		killed.stop()
		<-killed.end
		if w := s.marks.Load(); w != 1 {
			t.Errorf("%d writes of a mark for one batch", w)
		}
		s.marks.Store(0)
		var second starts
		m := b.join(t, s, &link, inbox.Options{}, func(ctx context.Context, m inbox.Message) error {
			second.add(m)
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		})
		until(t, "all is committed", func() bool { return b.Waiting(t) == 0 })
		m.leave(t)
		counts := map[int]int{}
		for i := range n {
			id := fmt.Sprint("m", i)
			ledger.Want(t, id, 1)
			a := second.of(id)
			if len(a) != 1 {
				t.Fatalf("%s was started %d times", id, len(a))
			}
			counts[a[0]]++
			if a[0] == 1 && len(began.of(id)) > 0 {
				t.Errorf("%s was started before, and is said to be the first", id)
			}
		}
		if counts[2] != 64 || counts[1] != n-64 {
			t.Errorf("deliveries by number: %v", counts)
		}
		if w := s.marks.Load(); w < 2 || w > n/8 {
			t.Errorf("%d writes of marks for %d records", w, n)
		}
	})
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B23] records of an aborted transaction are never handled; an open one only delays, and the lag says so", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, seeds(t))
		producer, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.DefaultProduceTopic(b.topic), kgo.TransactionalID(b.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		produce := func(id string) {
			t.Helper()
			if err := producer.ProduceSync(t.Context(), record(0, id)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		end := func(commit kgo.TransactionEndTry) {
			t.Helper()
			if err := producer.EndTransaction(t.Context(), commit); err != nil {
				t.Fatal(err)
			}
		}
		begin := func() {
			t.Helper()
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
		}
		begin()
		produce("aborted")
		end(kgo.TryAbort)
		begin()
		produce("open")
		var ledger idempotest.Ledger
		var link idempotest.Link
		m := b.join(t, newStore(), &link, inbox.Options{}, func(ctx context.Context, m inbox.Message) error {
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		})
		until(t, "the lag shows the open one", func() bool { return m.in.Lag()[b.topic+"/0"] == 1 })
		ledger.Want(t, "open", 0)
		end(kgo.TryCommit)
		until(t, "it is handled and the lag is gone", func() bool { return ledger.Count("open") > 0 && m.in.Lag()[b.topic+"/0"] == 0 && b.Waiting(t) == 0 })
		m.leave(t)
		ledger.Want(t, "open", 1)
		ledger.Want(t, "aborted", 0)
		if len(m.in.Lag()) != 0 {
			t.Errorf("a lag of partitions that nobody here has: %v", m.in.Lag())
		}
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t, seeds(t))
	in, err := inbox.New(idempotest.EngineWith(t, newStore(), idempo.Config{}), inbox.Options{Subscriber: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(say string, opts ...kgo.Opt) {
		t.Helper()
		err := idemkafka.Consume(t.Context(), append([]kgo.Opt{kgo.SeedBrokers(b.seeds...), kgo.ConsumeTopics(b.topic)}, opts...), in, nil, idemkafka.Options{})
		if !errors.Is(err, idemkafka.ErrUnsafeClient) || !strings.Contains(err.Error(), say) {
			t.Errorf("%v; want %s", err, say)
		}
	}
	group, committed, manual := kgo.ConsumerGroup(b.topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit()
	t.Run("[messages/B5] auto-commit of what is not handled", func(t *testing.T) {
		refused("set kgo.DisableAutoCommit()", group, committed)
		refused("set kgo.DisableAutoCommit()", group, committed, kgo.GreedyAutoCommit())
	})
	t.Run("uncommitted records would be read, and every mistake is named at once", func(t *testing.T) {
		refused("set kgo.FetchIsolationLevel(kgo.ReadCommitted())", group, manual)
		refused("set kgo.DisableAutoCommit(); records of aborted", group)
	})
	t.Run("a rebalance that does not wait for handlers", func(t *testing.T) {
		refused("set kgo.RebalanceTimeout", group, committed, manual, kgo.RebalanceTimeout(10*time.Second))
	})
	t.Run("[messages/I29] a topic that keeps records for longer than the inbox remembers", func(t *testing.T) {
		long := "2592000000" // 30 days
		if _, err := b.admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"retention.ms": &long}, b.topic+"-long"); err != nil {
			t.Fatal(err)
		}
		r := record(0, "a")
		r.Topic = b.topic + "-long"
		if err := b.own.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		opts := b.opts(kgo.ConsumeTopics(b.topic+"-long"), kgo.ConsumerGroup("long"))
		err := idemkafka.Consume(t.Context(), opts, in, func(context.Context, inbox.Message) error { t.Error("handled"); return nil }, idemkafka.Options{})
		if !errors.Is(err, inbox.ErrWindow) || !strings.Contains(err.Error(), b.topic+"-long") {
			t.Error(err)
		}
	})
}

// record is one for a partition, identified by CloudEvents.
func record(partition int32, id string) *kgo.Record {
	return &kgo.Record{Partition: partition, Value: []byte("body of " + id), Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("/test")}}}
}

// publishTo stores a record without a key in one partition.
func (b *broker) publishTo(t *testing.T, partition int32, id string) {
	t.Helper()
	if err := b.manual.ProduceSync(t.Context(), record(partition, id)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
