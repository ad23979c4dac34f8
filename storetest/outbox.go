package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/pubrec"
	"github.com/idempo/idempo/outbox"
)

// RunOutbox runs the contract of outbox.Store, and the rows of messages that stand on it, on the stores that open returns.
// Both handles of a Subject must be an outbox.Opener, and have transactions.
func RunOutbox(t *testing.T, open func(t testing.TB) Subject, c Caps) {
	t.Helper()
	shared := open(t)
	for i, one := range slices.Concat(logCases(), asideCases(), deskCases(), outboxCases(), claimCases(), relayCases()) {
		t.Run(one.name, func(t *testing.T) {
			s := shared
			if one.alone {
				s = open(t)
			}
			if why := one.skip(c, s); why != "" {
				t.Skip("skipped by caps: " + why)
			}
			one.run(newK(t, s, c, i, 2*time.Minute))
		})
	}
}

// A reel is a group of its own over the log of both handles, with a topic that no other case has. It is a relay by hand.
type reel struct {
	*K
	s, again     outbox.Store
	eyes         outbox.Desk
	group, topic string
	now          time.Time
	places       map[int]outbox.Place // by partition, as read
	page         int                  // rows of one
}

// reel makes the group, which begins at the end of the log.
func (k *K) reel() *reel {
	k.Helper()
	r := &reel{K: k, now: k.t0, places: map[int]outbox.Place{}, page: 100}
	r.s, _ = k.Store.(outbox.Opener).Outbox()
	r.again, r.eyes = k.Again.(outbox.Opener).Outbox()
	k.n++
	r.group = strings.ToLower(fmt.Sprint(k.tenant, "-", k.n))
	r.topic = r.group + ".t"
	r.hold("one", 0)
	return r
}

func (r *reel) holdParams(owner string, want int) outbox.HoldParams {
	return outbox.HoldParams{Group: r.group, Topics: []string{r.group + ".*"}, Owner: owner, From: outbox.FromNow, Lease: lease, Want: want, Now: r.now}
}

// hold is a sign of life of owner.
func (r *reel) hold(owner string, want int) outbox.Held {
	r.Helper()
	h, err := r.s.Hold(r.ctx, r.holdParams(owner, want))
	r.ok(err)
	return h
}

// own holds everything as owner and begins to read from where the store says.
func (r *reel) own(owner string) outbox.Held {
	r.Helper()
	h := r.hold(owner, outbox.Partitions)
	clear(r.places)
	for _, l := range h.Leases {
		r.places[l.Partition] = outbox.Place{Partition: l.Partition, Fence: l.Fence, Cursor: l.Cursor}
	}
	if len(h.Leases) != h.Total {
		r.Fatalf("%s holds %d of %d partitions", owner, len(h.Leases), h.Total)
	}
	return h
}

// row is an event of the reel's topic as Append hands it to the store.
func (r *reel) row(id, key string) outbox.Row {
	e := outbox.Event{ID: outbox.IDFor(r.group, id), Source: "/kit", Topic: r.topic, Key: key, Type: "Paid", Tenant: r.tenant, Payload: []byte(id),
		Headers: [][2]string{{"x-id", id}}}
	return outbox.Row{Event: e, Partition: outbox.PartitionOf(e.Tenant, e.Key, e.ID)}
}

// write appends rows in the transaction of ctx.
func (r *reel) write(ctx context.Context, rows ...outbox.Row) error {
	_, err := r.s.Append(ctx, outbox.AppendParams{Rows: rows, Lock: true, Now: r.now})
	return err
}

// commit appends rows in a transaction of its own.
func (r *reel) commit(rows ...outbox.Row) {
	r.Helper()
	r.ok(r.inTx(func(in tx) error { return r.write(in.ctx, rows...) }))
}

// publish commits events named by ids, all of the key.
func (r *reel) publish(key string, ids ...string) {
	r.Helper()
	for _, id := range ids {
		r.commit(r.row(id, key))
	}
}

// read reads until nothing more is there.
func (r *reel) read() (rows []outbox.Row) {
	r.Helper()
	for {
		p := r.once()
		rows = append(rows, p.Rows...)
		if !p.More && len(p.Rows) == 0 {
			return rows
		}
	}
}

// once reads one page.
func (r *reel) once() outbox.Page {
	r.Helper()
	p := outbox.ReadParams{Group: r.group, Topics: []string{r.group + ".*"}, MaxRows: r.page, MaxBytes: 8 << 20, PublishAfter: outbox.AfterCommit, Now: r.now}
	for _, at := range r.places {
		p.From = append(p.From, at)
	}
	slices.SortFunc(p.From, func(a, b outbox.Place) int { return a.Partition - b.Partition })
	page, err := r.again.Read(r.ctx, p)
	r.ok(err)
	own := page.Rows[:0]
	for _, row := range page.Rows {
		at := r.places[row.Partition]
		at.Cursor = row.Cursor
		r.places[row.Partition] = at
		if row.Topic == r.topic || strings.HasPrefix(row.Topic, r.group+".") {
			own = append(own, row)
		}
	}
	for _, next := range page.Next {
		at := r.places[next.Partition]
		at.Cursor = next.Cursor
		r.places[next.Partition] = at
	}
	page.Rows = own
	return page
}

// place is where the partition of a row stands, or its cursor where at is true.
func (r *reel) place(row outbox.Row, at bool) outbox.Place {
	p := r.places[row.Partition]
	if p.Cursor = (outbox.Cursor{}); at {
		p.Cursor = row.Cursor
	}
	return p
}

// set writes what became of rows, with no cursor moved.
func (r *reel) set(owner string, settings ...outbox.Setting) outbox.Moved {
	r.Helper()
	p := outbox.MoveParams{Group: r.group, Owner: owner, Asides: settings, Now: r.now}
	for _, s := range settings {
		if !slices.ContainsFunc(p.To, func(at outbox.Place) bool { return at.Partition == s.Row.Partition }) {
			p.To = append(p.To, r.place(s.Row, false))
		}
	}
	m, err := r.s.Move(r.ctx, p)
	r.ok(err)
	return m
}

// moved stores that everything that was read is done, but for what is set aside.
func (r *reel) moved(owner string, settings ...outbox.Setting) {
	r.Helper()
	p := outbox.MoveParams{Group: r.group, Owner: owner, Asides: settings, Now: r.now}
	for _, at := range r.places {
		p.To = append(p.To, at)
	}
	m, err := r.s.Move(r.ctx, p)
	if err != nil || len(m.Lost) > 0 {
		r.Fatalf("move: %+v, %v", m, err)
	}
}

// take takes what is due.
func (r *reel) take(owner string, limit, behind int) outbox.Taken {
	r.Helper()
	p := outbox.TakeParams{Group: r.group, Owner: owner, Limit: limit, Behind: behind, MaxBytes: 8 << 20, Lease: lease, Now: r.now}
	for _, at := range r.places {
		p.From = append(p.From, at)
	}
	t, err := r.s.Take(r.ctx, p)
	r.ok(err)
	return t
}

func (r *reel) desk() outbox.Desk { return r.eyes }

// status is how the group stands.
func (r *reel) status() outbox.GroupStatus {
	r.Helper()
	s, err := r.desk().Status(r.ctx, outbox.StatusParams{Group: r.group, Now: r.now})
	r.ok(err)
	if len(s.Groups) != 1 {
		r.Fatalf("status of one group: %+v", s.Groups)
	}
	return s.Groups[0]
}

// list reads events of the group.
func (r *reel) list(states ...outbox.State) []outbox.Aside {
	r.Helper()
	l, err := r.desk().List(r.ctx, outbox.ListParams{Group: r.group, States: states, Limit: 1000, Now: r.now})
	r.ok(err)
	return l.Events
}

// names are the payloads of rows, which are their names.
func names(rows []outbox.Row) (n []string) {
	for _, r := range rows {
		n = append(n, string(r.Payload))
	}
	return n
}

func asideNames(rows []outbox.Aside) (n []string) {
	for _, r := range rows {
		n = append(n, string(r.Payload))
	}
	return n
}

// wants compares two lists of names.
func (k *K) wants(what string, got []string, want ...string) {
	k.Helper()
	if !slices.Equal(got, want) {
		k.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A post is an outbox, a publisher that records, and the relays between, of a group of its own.
type post struct {
	*K
	box   *outbox.Outbox
	pub   *pubrec.Publisher
	group string
	topic string
}

// post opens an outbox whose events no other case publishes. Its group begins at the end of the log.
func (k *K) post() *post {
	k.Helper()
	r := k.reel()
	p := &post{K: k, pub: &pubrec.Publisher{}, group: r.group, topic: r.topic}
	_, err := r.s.Hold(k.ctx, outbox.HoldParams{Group: r.group, Topics: []string{r.group + ".*"}, Owner: "one", Lease: lease, Leave: true, Now: r.now})
	k.ok(err)
	p.box = k.boxFor(outbox.Options{})
	return p
}

func (k *K) boxFor(o outbox.Options) *outbox.Outbox {
	k.Helper()
	if o.Source == "" {
		o.Source = "/kit"
	}
	if o.Tenant == "" {
		o.Tenant = k.tenant
	}
	box, err := outbox.New(k.Store, o)
	k.ok(err)
	return box
}

// event is one of the post's topic; its name is its payload.
func (p *post) event(name, key string) outbox.Event {
	return outbox.Event{Topic: p.topic, Key: key, Type: "Paid", Payload: []byte(name)}
}

// append commits events in one transaction.
func (p *post) append(events ...outbox.Event) (ids []string) {
	p.Helper()
	p.ok(p.box.Do(p.ctx, func(ctx context.Context) (err error) {
		ids, err = p.box.Append(ctx, events...)
		return err
	}))
	return ids
}

// A running relay.
type running struct {
	*outbox.Relay
	k    *K
	stop context.CancelFunc
	end  chan error
}

func (p *post) options(o outbox.RelayOptions) outbox.RelayOptions {
	o.Group, o.Topics = p.group, []string{p.group + ".*"}
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.MinPoll, time.Millisecond)
	set(&o.MaxPoll, 20*time.Millisecond)
	set(&o.AckEvery, 5*time.Millisecond)
	set(&o.BackoffBase, time.Millisecond)
	set(&o.BackoffMax, 5*time.Millisecond)
	set(&o.Renew, 300*time.Millisecond)
	set(&o.Lease, 3*time.Second)
	return o
}

// relay runs one until the case ends, or it is stopped.
func (p *post) relay(s idempo.Store, pub outbox.Publisher, o outbox.RelayOptions) *running {
	p.Helper()
	r, err := outbox.NewRelay(s, pub, p.options(o))
	p.ok(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	run := &running{Relay: r, k: p.K, stop: cancel, end: make(chan error, 1)}
	go func() { run.end <- r.Run(ctx) }()
	p.Cleanup(func() { run.stop(); run.ended() })
	return run
}

// ended waits for its end.
func (r *running) ended() error {
	select {
	case err := <-r.end:
		r.end <- err
		return err
	case <-time.After(time.Minute):
		r.k.Error("a relay that was stopped goes on")
		return nil
	}
}

// published waits until n events were taken, and returns all that were.
func (p *post) published(n int) []outbox.Delivery {
	p.Helper()
	p.await(fmt.Sprintf("%d events", n), func() bool { return p.pub.Taken() >= n })
	return p.pub.First()
}

// await waits until ok, which what happens at the publisher makes true.
func (p *post) await(what string, ok func() bool) {
	p.Helper()
	if err := p.pub.Wait(p.ctx, ok); err != nil {
		p.Fatalf("%s never came: %v; published %q", what, err, deliveries(p.pub.Done()))
	}
}

// until polls a condition that the publisher does not see.
func (k *K) until(what string, ok func() bool) {
	k.Helper()
	for !ok() {
		select {
		case <-k.ctx.Done():
			k.Fatalf("%s never came", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func deliveries(list []outbox.Delivery) (n []string) {
	for _, d := range list {
		n = append(n, string(d.Payload))
	}
	return n
}

// perKey are the names of deliveries by key.
func perKey(list []outbox.Delivery) map[string][]string {
	m := map[string][]string{}
	for _, d := range list {
		m[d.Key] = append(m[d.Key], string(d.Payload))
	}
	return m
}

// list reads events of the post's group.
func (p *post) list(states ...outbox.State) []outbox.Aside {
	p.Helper()
	l, err := p.desk().List(p.ctx, outbox.ListParams{Group: p.group, States: states, Limit: 1000})
	p.ok(err)
	return l.Events
}

func (p *post) desk() outbox.Desk {
	_, d := p.Again.(outbox.Opener).Outbox()
	return d
}

func (p *post) status() outbox.GroupStatus {
	p.Helper()
	s, err := p.desk().Status(p.ctx, outbox.StatusParams{Group: p.group})
	p.ok(err)
	if len(s.Groups) != 1 {
		p.Fatalf("status of one group: %+v", s.Groups)
	}
	return s.Groups[0]
}
