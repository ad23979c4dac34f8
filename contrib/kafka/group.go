package idemkafka

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idempo/idempo/inbox"
)

// group is this process's part of a consumer group.
type group struct {
	in     *inbox.Inbox
	client *kgo.Client
	feed   *inbox.Feed
	open   chan struct{} // client and feed are there
	beside sync.WaitGroup

	commits sync.Mutex // one commit at a time, so that none overtakes another

	mu     sync.Mutex
	parts  map[place]*partition
	closed bool
	known  map[string]bool // topics whose horizon was checked
}

// place names a partition.
type place struct {
	topic string
	n     int32
}

func (p place) String() string { return p.topic + "/" + strconv.Itoa(int(p.n)) }

// assigned begins partitions. It waits for no broker and no store.
func (g *group) assigned(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	for _, at := range places(m) {
		g.parts[at] = newPartition(at, g.feed.NewShare())
	}
}

func (g *group) revoked(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	<-g.open
	g.giveUp(g.remove(places(m)), true)
}

// lost is revoked where somebody else may have the partitions already: their offsets are not ours to commit any more.
func (g *group) lost(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	<-g.open
	g.giveUp(g.remove(places(m)), false)
}

func places(m map[string][]int32) (out []place) {
	for topic, ns := range m {
		for _, n := range ns {
			out = append(out, place{topic, n})
		}
	}
	return out
}

// remove takes partitions out of the group's list: no commit by the clock touches them any more.
func (g *group) remove(which []place) (out []*partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range which {
		if p := g.parts[at]; p != nil {
			out = append(out, p)
			delete(g.parts, at)
		}
	}
	return out
}

// shut takes all partitions out and lets none in any more.
func (g *group) shut() (out []*partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, p := range g.parts {
		out = append(out, p)
	}
	clear(g.parts)
	return out
}

// giveUp ends partitions: nothing more of them starts, what runs ends or rolls back, and then, with commit, their offsets
// are committed as far as every record before is.
func (g *group) giveUp(ps []*partition, commit bool) {
	var all sync.WaitGroup
	for _, p := range ps {
		all.Go(p.close)
	}
	all.Wait()
	if commit {
		ctx, cancel := context.WithTimeout(context.Background(), commitBudget)
		defer cancel()
		g.commits.Lock() // what the clock has begun to commit lands before
		g.commitOf(ctx, ps)
		g.commits.Unlock()
	}
	for _, p := range ps {
		g.in.SetLag(p.at.String(), -1)
	}
}

const commitBudget = 10 * time.Second // for offsets that are committed although the partition, or the caller, is leaving

// commit commits what the clock asks for.
func (g *group) commit(ctx context.Context) {
	g.commits.Lock()
	defer g.commits.Unlock()
	g.mu.Lock()
	ps := slices.Collect(maps.Values(g.parts))
	g.mu.Unlock()
	g.commitOf(ctx, ps)
}

// commitOf commits the finished prefixes of ps. Its caller holds commits.
func (g *group) commitOf(ctx context.Context, ps []*partition) {
	offsets, moved := map[string]map[int32]kgo.EpochOffset{}, map[*partition]int64{}
	for _, p := range ps {
		at, ok := p.moved()
		if !ok {
			continue
		}
		if offsets[p.at.topic] == nil {
			offsets[p.at.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.at.topic][p.at.n], moved[p] = at, at.Offset
	}
	if len(offsets) == 0 {
		return
	}
	if err := commitSync(ctx, g.client, offsets); err != nil {
		if ctx.Err() == nil {
			g.in.Options().Logger.Warn("idemkafka: offsets are not committed; records may come again, as duplicates", "error", err)
		}
		return
	}
	for p, at := range moved {
		p.noted(at)
	}
}

// batch is what one poll brought of a partition.
type batch struct {
	p    *partition
	recs []*kgo.Record
}

// bind finds the partitions that records belong to. It is called while no rebalance can happen.
func (g *group) bind(fetches kgo.Fetches) (out []batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if p := g.parts[place{f.Topic, f.Partition}]; p != nil && len(f.Records) > 0 {
			out = append(out, batch{p, f.Records})
		}
	})
	return out
}

// take moves the partition's mark, one write for the batch, and hands the records over.
func (g *group) take(ctx context.Context, b batch) error {
	if !b.p.enter() {
		return nil
	}
	defer b.p.leave()
	unhook := context.AfterFunc(ctx, b.p.cancel)
	defer unhook()
	if err := g.horizon(b.p.ctx, b.p.at.topic); err != nil {
		return err
	}
	until := b.recs[len(b.recs)-1].Offset + 1
	for {
		was, err := g.in.Mark(b.p.ctx, g.group()+"/"+b.p.at.String(), until)
		if err == nil {
			b.p.found(was)
			break
		}
		if b.p.ctx.Err() != nil {
			return nil //nolint:nilerr // it was given up meanwhile: nothing of the batch was started
		}
		g.in.Options().Logger.Warn("idemkafka: the store does not take the mark of a partition; nothing of it is started yet", "partition", b.p.at.String(), "error", err)
		rest(b.p.ctx, 50*time.Millisecond+time.Duration(rand.Int64N(int64(2*time.Second))))
	}
	for _, r := range b.recs {
		b.p.add(r)
	}
	return nil
}

func (g *group) group() string { return fmt.Sprint(g.client.OptValue(kgo.ConsumerGroup)) }
