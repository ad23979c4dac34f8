package idemkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idempo/idempo"
)

// commitSync commits offsets and waits for every partition's answer.
func commitSync(ctx context.Context, cl *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) (err error) {
	cl.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, res *kmsg.OffsetCommitResponse, failed error) {
		if err = failed; res == nil {
			return
		}
		for _, t := range res.Topics {
			for _, p := range t.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	return err
}

// lag asks how much of the partitions is not finished, records of open transactions included.
func (g *group) lag(ctx context.Context) {
	g.mu.Lock()
	topics, parts := map[string]bool{}, map[place]*partition{}
	for at, p := range g.parts {
		topics[at.topic], parts[at] = true, p
	}
	g.mu.Unlock()
	if len(parts) == 0 {
		return
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	admin := kadm.NewClient(g.client)
	ends, err := admin.ListEndOffsets(ctx, names...)
	starts, err2 := admin.ListStartOffsets(ctx, names...)
	if err := errors.Join(err, err2); err != nil {
		if ctx.Err() == nil {
			g.in.Options().Logger.Warn("idemkafka: the lag is not known now", "error", err)
		}
		return
	}
	committed := g.client.CommittedOffsets()
	for at, p := range parts {
		end, ok := ends.Lookup(at.topic, at.n)
		start, ok2 := starts.Lookup(at.topic, at.n)
		if !ok || !ok2 || end.Err != nil || start.Err != nil {
			continue
		}
		from := max(start.Offset, committed[at.topic][at.n].Offset)
		if done, taken := p.prefix(); taken {
			from = done.Offset
		}
		g.mu.Lock()
		if g.parts[at] == p {
			g.in.SetLag(at.String(), max(end.Offset-from, 0))
		}
		g.mu.Unlock()
	}
}

// horizon checks, once per topic, how long it keeps records.
func (g *group) horizon(ctx context.Context, topic string) error {
	if g.known[topic] { // of the goroutine that polls alone
		return nil
	}
	g.known[topic] = true
	var keeps time.Duration // 0: not known
	configs, err := kadm.NewClient(g.client).DescribeTopicConfigs(ctx, topic)
	if err == nil && len(configs) == 1 && configs[0].Err == nil {
		keeps = kept(configs[0])
	}
	return g.in.CheckHorizon("topic "+topic, keeps)
}

// kept is how long a topic keeps records: one that is compacted may keep each for ever.
func kept(c kadm.ResourceConfig) time.Duration {
	keeps := time.Duration(0)
	for _, v := range c.Configs {
		switch v.Key {
		case "cleanup.policy":
			if slices.Contains(strings.Split(v.MaybeValue(), ","), "compact") {
				return idempo.Forever
			}
		case "retention.ms":
			ms, err := strconv.ParseInt(v.MaybeValue(), 10, 64)
			switch {
			case err != nil:
			case ms < 0 || ms > int64(idempo.Forever/time.Millisecond):
				keeps = idempo.Forever
			default:
				keeps = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return keeps
}

// ErrUnsafeClient says that a client's options would lose, reorder or too early read records; its text names each.
var ErrUnsafeClient = errors.New("idemkafka: unsafe client")

// safeConsumer refuses options by which a record could be passed over, or seen before its transaction is committed.
func safeConsumer(cl *kgo.Client, drain time.Duration) error {
	var bad []string
	say := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	if cl.OptValue(kgo.DisableAutoCommit) == false && cl.OptValue(kgo.AutoCommitMarks) == false {
		say("auto-commit would commit records that are not handled: set kgo.DisableAutoCommit()")
	}
	if fmt.Sprint(cl.OptValue(kgo.FetchIsolationLevel)) != "1" {
		say("records of aborted transactions would be read: set kgo.FetchIsolationLevel(kgo.ReadCommitted())")
	}
	if d, _ := cl.OptValue(kgo.RebalanceTimeout).(time.Duration); d <= drain {
		say("a rebalance waits %v, handlers have %v to end: set kgo.RebalanceTimeout above inbox.Options.DrainTimeout", d, drain)
	}
	return unsafe("consumer", bad)
}

func unsafe(what string, bad []string) error {
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", ErrUnsafeClient, what, strings.Join(bad, "; "))
}
