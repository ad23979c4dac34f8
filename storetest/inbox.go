package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// RunInbox runs the contract of inbox.Store, and the rows of messages that stand on it, on the stores that open returns.
// Both handles of a Subject must be an inbox.Opener, and have transactions.
func RunInbox(t *testing.T, open func(t testing.TB) Subject, c Caps) {
	t.Helper()
	shared := open(t)
	for i, one := range slices.Concat(receiptCases(), messageCases(), failureCases(), laneCases(), batchCases(), windowCases(), sealCases(), wardCases()) {
		t.Run(one.name, func(t *testing.T) {
			if why := one.skip(c, shared); why != "" {
				t.Skip("skipped by caps: " + why)
			}
			one.run(newK(t, shared, c, i, 2*time.Minute))
		})
	}
}

// A box is an inbox of one process, its handler, and what the case knows of it.
type box struct {
	*inbox.Inbox
	k *K
	// fails says what the handler returns for a message after its effect; nil: nothing.
	fails func(ctx context.Context, m inbox.Message) error

	mu   sync.Mutex
	runs []string // ids, in the order of starts
}

// box opens an inbox over the first handle; o may leave out what a case does not care for.
func (k *K) box(o inbox.Options) *box { return k.boxOn(k.Store, o) }

func (k *K) boxOn(s idempo.Store, o inbox.Options) *box {
	k.Helper()
	b, err := k.tryBox(s, o)
	k.ok(err)
	return b
}

func (k *K) tryBox(s idempo.Store, o inbox.Options) (*box, error) {
	if o.Subscriber == "" {
		o.Subscriber = k.tenant
	}
	if o.Tenant == "" {
		o.Tenant = k.tenant
	}
	if o.BackoffBase == 0 {
		o.BackoffBase, o.BackoffMax = 1, 1
	}
	in, err := inbox.New(k.engine(s, idempo.Config{CompleteBudget: 200 * time.Millisecond}), o)
	return &box{Inbox: in, k: k}, err
}

// work is the handler: one effect named after the message, then what fails says.
func (b *box) work(ctx context.Context, m inbox.Message) error {
	b.mu.Lock()
	b.runs = append(b.runs, m.ID)
	b.mu.Unlock()
	if err := b.k.Effect(ctx, b.name(m)); err != nil {
		return err
	}
	if b.fails != nil {
		return b.fails(ctx, m)
	}
	return nil
}

func (b *box) name(m inbox.Message) string {
	return fmt.Sprintf("%s %+q/%+q/%+q", b.Options().Subscriber, m.Tenant, m.Source, m.ID)
}

// started returns the ids of the starts so far.
func (b *box) started() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.runs)
}

// msg is a first delivery.
func msg(id string) inbox.Message {
	return inbox.Message{Source: "orders", ID: id, Type: "paid", Headers: [][2]string{{"x-a", "1"}, {"x-a", "2"}}, Body: []byte("body of " + id), Attempt: 1}
}

func inLane(id, lane, version string) inbox.Message {
	m := msg(id)
	m.Lane, m.Version = lane, version
	return m
}

// give handles m and wants the status.
func (b *box) give(m inbox.Message, want inbox.Status) inbox.Outcome {
	b.k.Helper()
	out, err := b.Handle(b.k.ctx, m, b.work)
	if err != nil || out.Status != want || out.Ack != (want != inbox.StatusRunning) {
		b.k.Fatalf("message %q: %+v, %v; want %s", m.ID, out, err, want)
	}
	return out
}

// once runs what is due.
func (b *box) once() int {
	b.k.Helper()
	n, err := b.Once(b.k.ctx, b.work)
	b.k.ok(err)
	return n
}

// effects wants n committed effects of the message id in the box's tenant, counted outside.
func (b *box) effects(id string, n int) {
	b.k.Helper()
	b.effectsOf(inbox.Message{Tenant: b.Options().Tenant, Source: "orders", ID: id}, n)
}

func (b *box) effectsOf(m inbox.Message, n int) {
	b.k.Helper()
	if got, err := b.k.Count(b.k.ctx, b.name(m)); err != nil || got != n {
		b.k.Errorf("message %q had %d effects, %v; want %d", m.ID, got, err, n)
	}
}

// receipts reads all of the box's, in order.
func (b *box) receipts() []inbox.Receipt {
	b.k.Helper()
	rs, err := b.Find(b.k.ctx, inbox.Selection{Statuses: []inbox.Status{inbox.StatusRetrying, inbox.StatusStored, inbox.StatusDead, inbox.StatusParked,
		inbox.StatusInDoubt, inbox.StatusStarted}})
	b.k.ok(err)
	return rs
}

// receipt wants exactly one receipt, of the status.
func (b *box) receipt(want inbox.Status) inbox.Receipt {
	b.k.Helper()
	rs := b.receipts()
	if len(rs) != 1 || rs[0].Status != want {
		b.k.Fatalf("receipts: %s; want one, %s", show(rs), want)
	}
	return rs[0]
}

// settled wants no receipt to be left.
func (b *box) settled() {
	b.k.Helper()
	if rs := b.receipts(); len(rs) != 0 {
		b.k.Errorf("left behind: %s", show(rs))
	}
}

func show(rs []inbox.Receipt) (s []string) {
	for _, r := range rs {
		s = append(s, fmt.Sprintf("%d %q %s %s attempts %d holds %v", r.Seq, r.Message.ID, r.Status, r.Reason, r.Attempts, r.Holds))
	}
	return s
}

var errBoom = errors.New("boom")

// failing returns a fails function that fails n times.
func failing(n int) func(context.Context, inbox.Message) error {
	var mu sync.Mutex
	return func(context.Context, inbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if n--; n >= 0 {
			return errBoom
		}
		return nil
	}
}
