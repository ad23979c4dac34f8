package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
)

// desk is an outbox with a relay that a test turns by hand.
type desk struct {
	t     *testing.T
	store *memstore.Store
	box   *outbox.Outbox
	svc   *operator.Service
}

func openDesk(t *testing.T) *desk {
	t.Helper()
	s := memstore.New(memstore.Options{})
	box, err := outbox.New(s, outbox.Options{Source: "/shop"})
	if err != nil {
		t.Fatal(err)
	}
	svc, err := operator.New(s, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t, s, box, svc}
}

func (d *desk) append(tenant, key string, payloads ...string) {
	d.t.Helper()
	for _, p := range payloads {
		err := d.box.Do(d.t.Context(), func(ctx context.Context) error {
			_, err := d.box.Append(ctx, outbox.Event{Topic: "orders.paid", Key: key, Type: "T", Tenant: tenant, Payload: []byte(p)})
			return err
		})
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// post is a publisher that takes what verdict lets through.
type post struct {
	mu      sync.Mutex
	verdict func(outbox.Delivery) error
	took    []outbox.Delivery
}

// Publish implements outbox.Publisher.
func (p *post) Publish(_ context.Context, b outbox.PublishParams) {
	for i, e := range b.Events {
		p.mu.Lock()
		var err error
		if p.verdict != nil {
			err = p.verdict(e)
		}
		if err == nil {
			p.took = append(p.took, e)
		}
		p.mu.Unlock()
		b.Done(i, err)
	}
}

func (p *post) payloads() (all []string) {
	for _, e := range p.took {
		all = append(all, string(e.Payload))
	}
	return all
}

// drain publishes what is there to a destination that refuses payloads which begin with "bad".
func (d *desk) drain() {
	d.t.Helper()
	to := &post{verdict: func(e outbox.Delivery) error {
		if strings.HasPrefix(string(e.Payload), "bad") {
			return outbox.Refused(errors.New("malformed"))
		}
		return nil
	}}
	r, err := outbox.NewRelay(d.store, to, outbox.RelayOptions{})
	if err == nil {
		_, err = r.Once(d.t.Context())
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) list(by operator.Principal, f operator.FindEvents) (all []outbox.Aside) {
	d.t.Helper()
	f.Group = "main"
	for {
		page, err := d.svc.Events(d.t.Context(), operator.ListEventsParams{By: by, Find: f})
		if err != nil {
			d.t.Fatal(err)
		}
		all = append(all, page.Events...)
		if f.After = page.Next; page.Next == "" {
			return all
		}
	}
}

func (d *desk) audit() []operator.Entry {
	d.t.Helper()
	page, err := d.svc.Audit(d.t.Context(), operator.ReadAuditParams{By: staff(operator.RoleAdmin), Find: operator.AuditParams{Limit: 1000}})
	if err != nil {
		d.t.Fatal(err)
	}
	return page.Entries
}

func TestEvents(t *testing.T) {
	t.Parallel()
	t.Run("what is dead is found, skipped, and audited; what is published is left alone", func(t *testing.T) {
		d := openDesk(t)
		d.append("acme", "k-1", "bad 1", "behind")
		d.append("acme", "k-2", "fine")
		d.drain()
		if dead := d.list(staff(operator.RoleViewer), operator.FindEvents{State: outbox.StateDead}); len(dead) != 1 {
			t.Fatalf("%+v", dead)
		}
		got, err := d.svc.ActEvents(t.Context(), operator.EventsParams{By: staff(operator.RoleOperator), Action: operator.ActionSkip, Reason: "x",
			Find: operator.FindEvents{Group: "main", Key: "k-1", State: outbox.StateDead}})
		if err != nil || got.OK != 1 || got.Failed != 0 {
			t.Fatalf("%+v %v", got, err)
		}
		got, err = d.svc.ActEvents(t.Context(), operator.EventsParams{By: staff(operator.RoleOperator), Action: operator.ActionRetry, Reason: "x",
			Find: operator.FindEvents{Group: "main", Key: "k-2"}})
		if err != nil || got.OK != 0 || got.Skipped != 1 {
			t.Errorf("%+v %v", got, err)
		}
		d.drain()
		if left := d.list(staff(operator.RoleViewer), operator.FindEvents{State: outbox.StatePending}); len(left) != 0 {
			t.Errorf("its key does not go on: %+v", left)
		}
	})
	t.Run("who may not is told that there is nothing, and it is written down", func(t *testing.T) {
		d := openDesk(t)
		d.append("acme", "k-1", "bad")
		d.drain()
		for action, by := range map[operator.Action]operator.Principal{operator.ActionRetry: staff(operator.RoleViewer), operator.ActionDiscard: staff(operator.RoleOperator)} {
			_, err := d.svc.ActEvents(t.Context(), operator.EventsParams{By: by, Action: action, Reason: "x", Find: operator.FindEvents{Group: "main", State: outbox.StateDead}})
			if operator.CodeOf(err) != operator.CodeNotFound {
				t.Errorf("%s: %v", action, err)
			}
		}
		if rows := d.audit(); len(rows) != 2 || rows[0].Code != operator.CodeForbidden || rows[1].Code != operator.CodeForbidden {
			t.Errorf("%+v", rows)
		}
		p := operator.ChangeGroupParams{By: staff(operator.RoleAdmin, "acme"), Group: outbox.GroupParams{Group: "main", Action: outbox.GroupPause}}
		if _, err := d.svc.ChangeGroup(t.Context(), p, "x"); operator.CodeOf(err) != operator.CodeNotFound {
			t.Errorf("a group belongs to all tenants: %v", err)
		}
		if _, err := d.svc.OutboxStatus(t.Context(), operator.OutboxStatusParams{By: staff(operator.RoleAdmin, "acme")}); operator.CodeOf(err) != operator.CodeNotFound {
			t.Errorf("how it stands is of all tenants: %v", err)
		}
	})
	t.Run("who is limited to tenants sees and appends for no other", func(t *testing.T) {
		d := openDesk(t)
		d.append("acme", "k-1", "a")
		d.append("other", "k-1", "b")
		d.drain()
		if all := d.list(staff(operator.RoleAdmin, "other"), operator.FindEvents{}); len(all) != 1 || all[0].Tenant != "other" {
			t.Errorf("%+v", all)
		}
		add := func(tenant string) error {
			_, err := d.svc.Append(t.Context(), operator.AppendParams{By: staff(operator.RoleAdmin, "other"), Reason: "x",
				Event: outbox.Event{Source: "/ops", Topic: "t", Type: "T", Tenant: tenant}})
			return err
		}
		if err := add("acme"); operator.CodeOf(err) != operator.CodeNotFound {
			t.Errorf("for another tenant: %v", err)
		}
		if err := add("other"); err != nil {
			t.Error(err)
		}
		if all := d.list(staff(operator.RoleAdmin), operator.FindEvents{}); len(all) != 3 {
			t.Errorf("%d events", len(all))
		}
	})
}

func TestReplay(t *testing.T) {
	t.Parallel()
	replay := func(d *desk, to *post, after string, limit int) (operator.Handled[outbox.Aside], error) {
		return d.svc.Replay(d.t.Context(), operator.ReplayParams{By: staff(operator.RoleOperator), To: to, Reason: "lost", Rate: 1e6, Limit: limit,
			Find: operator.FindEvents{Group: "main", After: after}})
	}
	full := func(t *testing.T) *desk {
		d := openDesk(t)
		for i := range 6 {
			d.append("acme", fmt.Sprint("k-", i%2), fmt.Sprint(i))
		}
		d.drain()
		return d
	}
	t.Run("the same ids, in the order of each key, with a fresh id for the broker", func(t *testing.T) {
		d, to := full(t), &post{}
		if got, err := replay(d, to, "", 0); err != nil || got.OK != 6 || got.Next != "" {
			t.Fatalf("%+v %v", got, err)
		}
		want := d.list(staff(operator.RoleViewer), operator.FindEvents{})
		for i, e := range want {
			j := slices.IndexFunc(to.took, func(x outbox.Delivery) bool { return x.ID == e.ID })
			if j < 0 || to.took[j].BrokerID == e.ID || !strings.HasPrefix(to.took[j].BrokerID, e.ID) || to.took[j].Replay == "" || to.took[j].Seq != e.Seq {
				t.Errorf("event %d: %+v", i, to.took)
			}
		}
		if !slices.Equal(to.payloads(), []string{"0", "1", "2", "3", "4", "5"}) {
			t.Errorf("%v", to.payloads())
		}
	})
	t.Run("a destination that does not answer is asked again; nothing overtakes within a key", func(t *testing.T) {
		d, failures := full(t), 0
		to := &post{verdict: func(e outbox.Delivery) error {
			if string(e.Payload) == "2" && failures < 2 {
				failures++
				return outbox.Unavailable(errors.New("away"))
			}
			return nil
		}}
		if got, err := replay(d, to, "", 0); err != nil || got.OK != 6 || failures != 2 {
			t.Fatalf("%+v %v, %d failures", got, err, failures)
		}
		var even []string
		for _, p := range to.payloads() {
			if p == "0" || p == "2" || p == "4" {
				even = append(even, p)
			}
		}
		if !slices.Equal(even, []string{"0", "2", "4"}) {
			t.Errorf("%v", even)
		}
	})
	t.Run("one that is refused ends it, and it goes on behind what was published", func(t *testing.T) {
		d := full(t)
		to := &post{verdict: func(e outbox.Delivery) error {
			if string(e.Payload) == "4" {
				return outbox.Refused(errors.New("too large"))
			}
			return nil
		}}
		got, err := replay(d, to, "", 0)
		if err != nil || got.Failed != 1 || len(got.Failures) != 1 || got.Next == "" {
			t.Fatalf("%+v %v", got, err)
		}
		rest := &post{}
		if got, err = replay(d, rest, got.Next, 0); err != nil || got.Failed != 0 || !slices.Equal(rest.payloads(), []string{"4", "5"}) {
			t.Errorf("%v %+v %v", rest.payloads(), got, err)
		}
	})
	t.Run("a limit ends it with a cursor, and each order is audited", func(t *testing.T) {
		d, to := full(t), &post{}
		got, err := replay(d, to, "", 4)
		if err != nil || got.OK != 4 || got.Next == "" {
			t.Fatalf("%+v %v", got, err)
		}
		if got, err = replay(d, to, got.Next, 4); err != nil || got.OK != 2 || len(to.took) != 6 {
			t.Errorf("%+v %v", got, err)
		}
		if rows := d.audit(); len(rows) != 2 || rows[0].Action != operator.ActionReplay || rows[0].Reason != "lost" {
			t.Errorf("%+v", rows)
		}
		_, err = d.svc.Replay(t.Context(), operator.ReplayParams{By: staff(operator.RoleViewer), To: to, Reason: "x", Find: operator.FindEvents{Group: "main"}})
		if e, ok := errors.AsType[*operator.Error](err); !ok || e.Code != operator.CodeNotFound {
			t.Errorf("a viewer: %v", err)
		}
	})
}
