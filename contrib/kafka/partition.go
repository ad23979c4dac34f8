package idemkafka

import (
	"context"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idempo/idempo/inbox"
)

// partition is one that this process has for now.
type partition struct {
	at     place
	share  *inbox.Share
	ctx    context.Context // ends when it is given up
	cancel func()
	intake sync.WaitGroup // who hands records over

	mu        sync.Mutex
	leaving   bool
	marked    bool
	before    int64             // records before it may have been started by somebody
	open      []kgo.EpochOffset // taken and not finished, in order; some of its head may be done
	done      map[int64]bool
	next      kgo.EpochOffset // behind the last one taken
	committed int64
}

func newPartition(at place, share *inbox.Share) *partition {
	p := &partition{at: at, share: share, done: map[int64]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// enter begins to hand records over, unless the partition is given up.
func (p *partition) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving {
		return false
	}
	p.intake.Add(1)
	return true
}

func (p *partition) leave() { p.intake.Done() }

// close returns when nothing of the partition runs any more.
func (p *partition) close() {
	p.mu.Lock()
	p.leaving = true
	p.mu.Unlock()
	p.cancel()
	p.intake.Wait()
	p.share.Close()
}

// found notes the mark that was there before this process moved it for the first time.
func (p *partition) found(mark int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.marked {
		p.marked, p.before = true, mark
	}
}

// add hands a record over.
func (p *partition) add(r *kgo.Record) {
	p.mu.Lock()
	p.open = append(p.open, kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset})
	p.next = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	attempt := 1
	if r.Offset < p.before {
		attempt = 2
	}
	p.mu.Unlock()
	if r.Attrs.IsControl() {
		p.finished(r.Offset)
		return
	}
	p.share.Add(inbox.Delivery{Message: message(r, attempt), Ack: func(context.Context) error {
		p.finished(r.Offset)
		return nil
	}})
}

// finished notes that a record needs no delivery any more.
func (p *partition) finished(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[offset] = true
	for len(p.open) > 0 && p.done[p.open[0].Offset] {
		delete(p.done, p.open[0].Offset)
		p.open = p.open[1:]
	}
}

// prefix is the offset before which everything is finished; false: nothing was taken yet.
func (p *partition) prefix() (kgo.EpochOffset, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) > 0 {
		return p.open[0], true
	}
	return p.next, p.next.Offset > 0
}

// moved is what is to be committed, if there is something new.
func (p *partition) moved() (kgo.EpochOffset, bool) {
	at, ok := p.prefix()
	p.mu.Lock()
	defer p.mu.Unlock()
	return at, ok && at.Offset > p.committed
}

func (p *partition) noted(committed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = committed
}

// message is r as the inbox takes it.
func message(r *kgo.Record, attempt int) inbox.Message {
	m := inbox.Message{
		Source: r.Topic, Partition: string(r.Key), Body: r.Value, Attempt: attempt, Time: r.Timestamp,
		Position: place{r.Topic, r.Partition}.String() + "/" + strconv.FormatInt(r.Offset, 10),
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, [2]string{h.Key, string(h.Value)})
	}
	return m
}
