package idemkafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idempo/idempo/inbox"
)

// Options of Consume. The zero value works.
type Options struct {
	// CommitEvery is how often offsets are committed; those of a partition that is given up are committed at once. Default 1s.
	CommitEvery time.Duration
	// LagEvery is how often the brokers are asked how far the group is behind; see inbox.Inbox.Lag. Default 10s.
	LagEvery time.Duration
}

// Consume handles the records of a consumer group's topics, and what the inbox has stored for later, until ctx ends; then
// it lets what runs end (inbox.Options.DrainTimeout), commits the offsets of exactly what was committed, leaves the group,
// and returns nil. It makes its client of the options in client, and closes it: BlockRebalanceOnPoll and the callbacks of
// a rebalance (OnPartitionsAssigned, Revoked, Lost) are its own.
//
// It returns ErrUnsafeClient, before a record is taken, where the options let records be lost or read too early;
// inbox.ErrWindow where a topic keeps records for longer than the inbox remembers; inbox.ErrBreaker where too many
// records in a row could not be identified.
//
// When a partition is taken away nothing more of it is started, what runs ends or rolls back, and the offsets before the
// first record that is not committed are committed. Records of one lane run in the order of their partition. While brokers
// or the store are away it goes on by itself, with jitter, and commits nothing. A record that no broker delivers yet,
// because a producer's transaction is open, shows in the lag.
func Consume(ctx context.Context, client []kgo.Opt, in *inbox.Inbox, h inbox.Handler, o Options) error {
	if o.CommitEvery <= 0 {
		o.CommitEvery = time.Second
	}
	if o.LagEvery <= 0 {
		o.LagEvery = 10 * time.Second
	}
	g := &group{in: in, parts: map[place]*partition{}, known: map[string]bool{}, open: make(chan struct{})}
	bytes := int32(min(in.Options().MaxInFlightBytes, 50<<20)) //nolint:gosec // bounded
	opts := append([]kgo.Opt{kgo.FetchMaxBytes(bytes), kgo.FetchMaxPartitionBytes(min(bytes, 1<<20))}, client...)
	opts = append(opts, kgo.BlockRebalanceOnPoll(), kgo.KeepControlRecords(),
		kgo.OnPartitionsAssigned(g.assigned), kgo.OnPartitionsRevoked(g.revoked), kgo.OnPartitionsLost(g.lost))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("idemkafka: client: %w", err)
	}
	defer cl.CloseAllowingRebalance()
	if err := safeConsumer(cl, in.Options().DrainTimeout); err != nil {
		g.shut()
		close(g.open)
		return err
	}
	g.client, g.feed = cl, in.Feed(ctx, h)
	close(g.open)
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.beside.Go(func() { every(beside, o.CommitEvery, g.commit) })
	g.beside.Go(func() { every(beside, o.LagEvery, g.lag) })
	err = g.poll(ctx)
	g.giveUp(g.shut(), true)
	cancel()
	g.beside.Wait()
	return errors.Join(err, g.feed.Close())
}

// poll hands records to the feed until ctx, or the feed, ends.
func (g *group) poll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.beside.Go(func() {
		select {
		case <-g.feed.Stopped():
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		n, err := g.feed.RoomFor(g.in.Options().MaxInFlight / 4) // so that a mark stands for many
		if err != nil {
			return nil //nolint:nilerr // Close tells why
		}
		fetches := g.client.PollRecords(ctx, n)
		taken := g.bind(fetches)
		g.client.AllowRebalance()
		for _, t := range taken {
			if err := g.take(ctx, t); err != nil {
				return err
			}
		}
		if err := fetches.Err(); ctx.Err() == nil && err != nil {
			g.in.Options().Logger.Warn("idemkafka: a broker does not deliver; asking again", "error", err)
			rest(ctx, time.Duration(rand.Int64N(int64(2*time.Second))))
		}
	}
}

// every calls f again and again until ctx ends.
func every(ctx context.Context, d time.Duration, f func(context.Context)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		f(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// rest waits for d or the end of ctx.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
