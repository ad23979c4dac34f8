package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/outbox"
)

// outboxCases are the rows of page messages that an outbox over any store keeps, seen by a publisher.
func outboxCases() []testCase {
	c := func(name string, run func(k *K)) testCase { return testCase{name: name, needs: needTx, run: run} }
	kept := c("a group that never runs, and a topic that no group matches, keep their rows until a person lets go", rowUnmatched)
	kept.alone = true
	return []testCase{
		c("[messages/O1] what is rolled back, whole or to a savepoint, is never published", rowRollback),
		c("[messages/O2] whatever order transactions commit in, all is published once committed, each key in order", rowOrder),
		c("[messages/O4] two writers of one key: published in the order in which they held it", rowTwoWriters),
		c("[messages/O5] 10,000 events in one transaction; too many keys; a deadlock", rowMany),
		c("[messages/O6] an event that breaks a rule is refused by field and rule, and the transaction goes on", rowRules),
		c("[messages/O7] a payload that is too large is refused with both sizes", rowTooLarge),
		c("[messages/O8] headers that are not allowed are refused by name", rowHeaders),
		c("any bytes arrive as they were", rowBytes),
		c("trace context travels unchanged", rowTrace),
		{name: "an append outside of an open transaction is never done", needs: needTx | needOwn, run: rowNoTx},
		kept,
	}
}

// savepoint runs f in one that is rolled back, where the subject has such.
func (k *K) savepoint(ctx context.Context, f func()) {
	k.Helper()
	if k.Exec == nil {
		return
	}
	k.ok(k.Exec(ctx, "SAVEPOINT idempo_kit"))
	f()
	k.ok(k.Exec(ctx, "ROLLBACK TO SAVEPOINT idempo_kit"))
}

func rowRollback(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	for i := range 10 {
		err := p.box.Do(k.ctx, func(ctx context.Context) error {
			_, err := p.box.Append(ctx, p.event(fmt.Sprint("undone", i), "k"), p.event(fmt.Sprint("undone", i, "b"), ""))
			k.ok(err)
			return errUndo
		})
		if !errors.Is(err, errUndo) {
			k.Fatal(err)
		}
		k.ok(p.box.Do(k.ctx, func(ctx context.Context) error {
			_, err := p.box.Append(ctx, p.event(fmt.Sprint(i), "k"))
			k.ok(err)
			k.savepoint(ctx, func() {
				_, err := p.box.Append(ctx, p.event(fmt.Sprint("undone", i, "c"), "k"), p.event(fmt.Sprint("undone", i, "d"), "k2"))
				k.ok(err)
			})
			_, err = p.box.Append(ctx, p.event(fmt.Sprint(i, "+"), "k"))
			return err
		}))
	}
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprint(i), fmt.Sprint(i, "+"))
	}
	k.wants("published", deliveries(p.published(20)), want...)
}

// A history notes what was appended under the lock of each key, and whether it committed.
type history struct {
	mu    sync.Mutex
	byKey map[string][]*noted
}

type noted struct {
	name      string
	committed bool
}

func (h *history) note(key, name string) *noted {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := &noted{name: name}
	if h.byKey == nil {
		h.byKey = map[string][]*noted{}
	}
	h.byKey[key] = append(h.byKey[key], n)
	return n
}

// check compares what was published with what committed.
func (h *history) check(k *K, published []outbox.Delivery) {
	k.Helper()
	got := perKey(published)
	for key, all := range h.byKey {
		var want []string
		for _, n := range all {
			if n.committed {
				want = append(want, n.name)
			}
		}
		if key == "" {
			slices.Sort(want)
			slices.Sort(got[key])
		}
		if !slices.Equal(got[key], want) {
			k.Errorf("key %q: published %q, committed %q", key, got[key], want)
		}
	}
}

func (h *history) committed() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.byKey {
		for _, one := range all {
			if one.committed {
				n++
			}
		}
	}
	return n
}

// some appends a few events in the transaction of ctx, and returns what marks them as committed.
func (p *post) some(ctx context.Context, h *history, name string, keys ...string) (func(), error) {
	var mine []*noted
	for i, key := range keys {
		one := fmt.Sprint(name, ".", i)
		if _, err := p.box.Append(ctx, p.event(one, key)); err != nil {
			return nil, err
		}
		mine = append(mine, h.note(key, one))
		p.savepoint(ctx, func() {
			if _, err := p.box.Append(ctx, p.event(one+" undone", key)); err != nil {
				p.Errorf("in a savepoint: %v", err)
			}
		})
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, n := range mine {
			n.committed = true
		}
	}, nil
}

func rowOrder(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{BatchRows: 20})
	var h history
	if k.caps.Lanes && k.Own != nil { // long ones, which end in another order than they began
		for round := range 3 {
			var ends []func()
			for i := range 4 {
				in, commit := k.beside()
				done, err := p.some(in, &h, fmt.Sprint("long", round, ".", i), fmt.Sprint("long", i), "")
				k.ok(err)
				ends = append(ends, func() { commit(); done() })
			}
			p.shorts(&h, fmt.Sprint("short", round), 5)
			for _, i := range []int{2, 0, 3, 1} {
				ends[i]()
				p.shorts(&h, fmt.Sprint("between", round, ".", i), 1)
			}
		}
	} else {
		p.shorts(&h, "short", 15)
	}
	n := h.committed()
	if n < 60 {
		k.Fatalf("only %d events were committed", n)
	}
	h.check(k, p.published(n))
	k.until("the end of the backlog", func() bool { return len(p.list(outbox.StatePending, outbox.StateWaiting, outbox.StateDead)) == 0 })
}

// shorts runs four writers at once, each with n transactions, every fifth of which is rolled back.
func (p *post) shorts(h *history, name string, n int) {
	p.Helper()
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range n {
				var done func()
				err := p.box.Do(p.ctx, func(ctx context.Context) (err error) {
					keys := []string{fmt.Sprint("k", (w+i)%3), ""}
					if done, err = p.some(ctx, h, fmt.Sprint(name, ".", w, ".", i), keys...); err == nil && (w+i)%5 == 4 {
						return errUndo
					}
					return err
				})
				switch {
				case err == nil:
					done()
				case !errors.Is(err, errUndo):
					p.Errorf("a short transaction: %v", err)
				}
			}
		})
	}
	all.Wait()
}

func rowTwoWriters(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	var h history
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 10 {
				var done func()
				k.ok(p.box.Do(k.ctx, func(ctx context.Context) (err error) {
					done, err = p.some(ctx, &h, fmt.Sprint(w, ".", i), "one key")
					return err
				}))
				done()
			}
		})
	}
	all.Wait()
	h.check(k, p.published(80))
}

func rowMany(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	events := make([]outbox.Event, 10_000)
	for i := range events {
		events[i] = p.event(fmt.Sprint(i), fmt.Sprint("k", i%1000))
	}
	before := 0
	k.ok(p.box.Do(k.ctx, func(ctx context.Context) error {
		if k.Statements != nil {
			before = k.Statements()
		}
		ids, err := p.box.Append(ctx, events...)
		if err == nil && len(ids) != len(events) {
			k.Errorf("%d ids", len(ids))
		}
		if k.Statements != nil {
			if n := k.Statements() - before; n > 200 {
				k.Errorf("%d statements for 10,000 events", n)
			}
		}
		return err
	}))
	got := perKey(p.published(10_000))
	for i := range 1000 {
		key := fmt.Sprint("k", i)
		var want []string
		for j := i; j < 10_000; j += 1000 {
			want = append(want, fmt.Sprint(j))
		}
		k.wants(key, got[key], want...)
	}
	p.tooManyKeys()
	if k.caps.Lanes {
		p.deadlock()
	}
}

func (p *post) tooManyKeys() {
	p.Helper()
	var keys []outbox.Event
	for i := range 1001 {
		keys = append(keys, p.event("x", fmt.Sprint("many", i)))
	}
	p.ok(p.box.Do(p.ctx, func(ctx context.Context) error {
		_, err := p.box.Append(ctx, keys...)
		if !errors.Is(err, outbox.ErrTooManyKeys) || !strings.Contains(err.Error(), "KeyLock: caller") {
			p.Errorf("1,001 keys: %v", err)
		}
		_, err = p.box.Append(ctx, p.event("after too many", ""))
		return err
	}))
	if _, ok := p.Store.(idempo.Transactor); ok {
		box := p.boxFor(outbox.Options{KeyLock: outbox.KeyLockCaller})
		p.ok(box.Do(p.ctx, func(ctx context.Context) error {
			_, err := box.Append(ctx, keys...)
			return err
		}))
	}
	p.published(10_000 + 1 + 1001)
}

// deadlock makes two transactions wait for each other's keys, and runs each again as long as the database asks for it.
func (p *post) deadlock() {
	p.Helper()
	var both, all sync.WaitGroup
	both.Add(2)
	conflicts := make(chan error, 100)
	for i, keys := range [][]string{{"dead-a", "dead-b"}, {"dead-b", "dead-a"}} {
		all.Go(func() {
			first := true
			for {
				err := p.box.Do(p.ctx, func(ctx context.Context) error {
					if _, err := p.box.Append(ctx, p.event(fmt.Sprint("lock", i), keys[0])); err != nil {
						return err
					}
					if first {
						first = false
						both.Done()
						both.Wait()
					}
					_, err := p.box.Append(ctx, p.event(fmt.Sprint("lock", i, "+"), keys[1]))
					return err
				})
				if err == nil {
					return
				}
				conflicts <- err
				if codeOf(err) != "tx_conflict" {
					p.Errorf("a deadlock came back as %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	if len(conflicts) == 0 {
		p.Error("void: there was no deadlock")
	}
	got := perKey(p.published(10_000 + 1 + 1001 + 4))
	a, b := got["dead-a"], got["dead-b"]
	if len(a) != 2 || len(b) != 2 || (a[0] == "lock0") != (b[0] == "lock0+") {
		p.Errorf("keys %q and %q", a, b)
	}
}

// refuses appends a good event, the bad one, and another good one in a transaction, and wants the bad one alone refused.
func (p *post) refuses(e outbox.Event, want error, words ...string) {
	p.Helper()
	before := len(p.pub.First())
	p.ok(p.box.Do(p.ctx, func(ctx context.Context) error {
		_, err := p.box.Append(ctx, p.event("good", "k"))
		p.ok(err)
		ids, err := p.box.Append(ctx, p.event("beside", "k"), e)
		if !errors.Is(err, want) || ids != nil {
			p.Errorf("%.80v: %v, want %v", e, err, want)
			return nil
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				p.Errorf("the text %q does not say %q", err, w)
			}
		}
		_, err = p.box.Append(ctx, p.event("still good", "k"))
		return err
	}))
	p.wants("published", deliveries(p.published(before + 2)[before:]), "good", "still good")
}

func rowRules(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	bad := func(change func(e *outbox.Event), words ...string) {
		k.Helper()
		e := p.event("bad", "k")
		change(&e)
		p.refuses(e, outbox.ErrEvent, words...)
	}
	bad(func(e *outbox.Event) { e.Topic = "" }, "topic", "required")
	bad(func(e *outbox.Event) { e.Topic = "a b" }, `topic "a b": only letters, digits, . _ - are allowed`)
	bad(func(e *outbox.Event) { e.Topic = strings.Repeat("a", 201) }, "topic", "200")
	for _, topic := range []string{".a", "a.", "a..b", "."} {
		bad(func(e *outbox.Event) { e.Topic = topic }, "topic", "empty part")
	}
	bad(func(e *outbox.Event) { e.Type = "" }, "type", "required")
	long := strings.Repeat("ü", 128)
	bad(func(e *outbox.Event) { e.Type = long }, "type", "255")
	bad(func(e *outbox.Event) { e.Tenant = long }, "tenant", "255")
	bad(func(e *outbox.Event) { e.Source = long }, "source", "255")
	bad(func(e *outbox.Event) { e.Key = strings.Repeat("k", 513) }, "key", "512")
	for _, key := range []string{"a\x00b", "a\nb", "a\u0085b", "\x7f", "\xff"} {
		bad(func(e *outbox.Event) { e.Key = key }, "key", "control characters")
	}
	for _, id := range []string{"7", "886313e1-3b8a-5372-9b90-0c9aee199e5", "g86313e1-3b8a-5372-9b90-0c9aee199e5d", "886313e13b8a53729b900c9aee199e5d"} {
		bad(func(e *outbox.Event) { e.ID = id }, "id", "UUID")
	}
	bad(func(e *outbox.Event) { e.ID = "00000000-0000-0000-0000-000000000000" }, "id", "nil")
	for _, source := range []string{""} { // of the options, where an event has none
		if _, err := outbox.New(k.Store, outbox.Options{Source: source}); err == nil {
			k.Error("an outbox without a source")
		}
	}
	good := p.event("limits", strings.Repeat("k", 512))
	good.Topic, good.ID = p.topic+"."+strings.Repeat("a", 199-len(p.topic)), "886313E1-3B8A-5372-9B90-0C9AEE199E5D"
	good.Type = strings.Repeat("t", 255)
	if ids := p.append(good); ids[0] != "886313e1-3b8a-5372-9b90-0c9aee199e5d" {
		k.Errorf("id %s", ids[0])
	}
}

func rowTooLarge(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	e := p.event("", "k")
	e.Payload = bytes.Repeat([]byte{1}, 960<<10+1)
	p.refuses(e, outbox.ErrTooLarge, "983041", "983040")
	e.Payload = e.Payload[1:]
	p.append(e)
	if got := p.published(3); len(got[2].Payload) != 960<<10 {
		k.Errorf("%d bytes came", len(got[2].Payload))
	}
	for _, n := range []int{-1, 64<<20 + 1} {
		if _, err := outbox.New(k.Store, outbox.Options{Source: "/kit", MaxPayload: n}); err == nil {
			k.Errorf("MaxPayload %d was taken", n)
		}
	}
}

func rowHeaders(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	bad := func(name, value string, words ...string) {
		k.Helper()
		e := p.event("bad", "k")
		e.Headers = [][2]string{{"x-good", "1"}, {name, value}}
		p.refuses(e, outbox.ErrHeader, words...)
	}
	for _, name := range []string{"", "a b", "a:b", "ä", "a\x00", "a\n"} {
		bad(name, "1", "token")
	}
	for _, value := range []string{"a\rb", "a\nb", "a\x00b"} {
		bad("x-value", value, "x-value", "CR, LF or NUL")
	}
	for _, name := range []string{"ce_id", "Ce-Source", "cloudEvents:id", "CLOUDEVENTS_type", "idempo-replay", "Idempo-X", "Nats-Msg-Id", "nats-x", "webhook-id",
		"Idempotency-Key", "traceparent", "TraceState"} {
		bad(name, "1", name, "reserved")
	}
	bad("x-long", strings.Repeat("v", 16<<10), "16384")
	e := p.event("good", "k")
	e.Headers = [][2]string{{"X-A", "1"}, {"x-a", "2"}, {"X-A", ""}, {"centre", "ü"}, {"b", strings.Repeat("v", 16<<10-40)}}
	p.append(e)
	n := len(p.pub.First())
	p.await("the good one", func() bool {
		return slices.Contains(deliveries(p.pub.First()[max(n-2, 0):]), "good") && len(p.pub.First()[len(p.pub.First())-1].Headers) == 5
	})
	if got := p.pub.First(); !slices.Equal(got[len(got)-1].Headers, e.Headers) {
		k.Errorf("headers came as %.200q", got[len(got)-1].Headers)
	}
}

func rowBytes(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	want := [][]byte{nil, {}, all, []byte(`{"b":1, "a":2.0}`), []byte(" \r\n\t'\"\\$1 ?"), bytes.Repeat([]byte{0xff}, 100_000)}
	for _, body := range want {
		e := p.event("", "k")
		e.Payload = body
		p.append(e)
	}
	for i, d := range p.published(len(want)) {
		if !bytes.Equal(d.Payload, want[i]) || (d.Payload == nil) != (want[i] == nil) {
			k.Errorf("payload %d came with %d bytes, nil %v", i, len(d.Payload), d.Payload == nil)
		}
	}
}

func rowTrace(k *K) {
	p := k.post()
	parent, state := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=a:b,other=1"
	p.box = k.boxFor(outbox.Options{TraceFunc: func(context.Context) (string, string) { return parent, state }})
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	p.append(p.event("e", "k"))
	d := p.published(1)[0]
	if d.Trace.Parent != parent || d.Trace.State != state || !slices.Contains(d.Extra(), [2]string{"traceparent", parent}) || !slices.Contains(d.Extra(), [2]string{"tracestate", state}) {
		k.Errorf("trace %+v, headers %q", d.Trace, d.Extra())
	}
}

func rowNoTx(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	if _, err := p.box.Append(k.ctx, p.event("outside", "k")); !errors.Is(err, outbox.ErrNoTx) {
		k.Errorf("outside of a transaction: %v", err)
	}
	for _, commits := range []bool{true, false} {
		in, commit, undo, err := k.Own(k.ctx)
		k.ok(err)
		end := undo
		if commits {
			end = commit
		}
		k.ok(end())
		if _, err := p.box.Append(in, p.event("after the end", "k")); err == nil {
			k.Errorf("in a finished transaction (committed %v): no error", commits)
		}
	}
	if k.Poison != nil {
		_ = p.box.Do(k.ctx, func(ctx context.Context) error {
			k.Poison(ctx)
			_, _ = p.box.Append(ctx, p.event("aborted", "k")) // a database without aborted transactions takes it: then it commits
			return errUndo
		})
	}
	p.append(p.event("inside", "k"))
	k.wants("published", deliveries(p.published(1)), "inside")
}

func rowUnmatched(k *K) {
	r := k.reel()
	box := k.boxFor(outbox.Options{})
	k.ok(box.Do(k.ctx, func(ctx context.Context) error {
		_, err := box.Append(ctx, outbox.Event{Topic: "nobody.wants", Type: "T", Payload: []byte("12345")}, outbox.Event{Topic: r.topic, Type: "T", Payload: []byte("123")})
		return err
	}))
	r.now = time.Now().Add(30 * 24 * time.Hour)
	st, err := r.desk().Status(k.ctx, outbox.StatusParams{Now: r.now})
	k.ok(err)
	if len(st.Unmatched) != 1 || st.Unmatched[0].Topic != "nobody.wants" || st.Unmatched[0].Rows != 1 || st.Unmatched[0].Bytes != 5 || len(st.Groups) != 1 || st.Groups[0].Pending != 1 {
		k.Errorf("status %+v", st)
	}
	if _, ok := r.s.(outbox.Keeper); !ok {
		return
	}
	if n, h := r.keep(time.Hour); n != 0 || h.Kind != "topic" && h.Kind != "group" {
		k.Errorf("%d rows went, held by %+v", n, h)
	}
	change := outbox.ChangeParams{Group: r.group, Action: outbox.ActionDiscard, Topics: []string{"nobody.wants"}, Audit: who(), Now: r.now}
	_, err = r.desk().Change(k.ctx, change)
	k.ok(err)
	if n, h := r.keep(time.Hour); n > 1 || h.Kind != "group" { // of one slot, they go together
		k.Errorf("after the discard %d rows went, held by %+v", n, h)
	}
	_, err = r.desk().SetGroup(k.ctx, outbox.GroupParams{Group: r.group, Action: outbox.GroupRemove, Audit: who(), Now: r.now})
	k.ok(err)
	_, err = r.desk().SetGroup(k.ctx, outbox.GroupParams{Group: "later", Action: outbox.GroupCreate, From: outbox.FromNow, Topics: []string{"*"}, Audit: who(), Now: r.now})
	k.ok(err)
	r.keep(time.Hour)
	if st, err = r.desk().Status(k.ctx, outbox.StatusParams{Now: r.now}); err != nil || st.Rows != 0 {
		k.Errorf("%d rows are left, %v", st.Rows, err)
	}
}
