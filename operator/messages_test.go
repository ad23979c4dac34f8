package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// dead puts n dead messages of a tenant into the store.
func dead(t *testing.T, s *memstore.Store, tenant string, n int) {
	t.Helper()
	for i := range n {
		r := inbox.Receipt{Subscriber: "billing", Key: fmt.Sprintf("%-32d", i), Status: inbox.StatusDead, Reason: inbox.ReasonAttempts, Holds: true, Attempts: 10,
			Message: inbox.Message{Tenant: tenant, Source: "orders", ID: fmt.Sprint("m-", i), Lane: "c-1", Body: []byte("body")}}
		if st, err := s.Inbox().Put(t.Context(), inbox.PutParams{Receipt: r}); err != nil || st.Lost {
			t.Fatal(st, err)
		}
	}
}

func staff(role operator.Role, tenants ...string) operator.Principal {
	p := operator.Principal{Actor: "ann", Role: role, Channel: "cli"}
	if len(tenants) > 0 {
		p.Tenants = tenants
	}
	return p
}

// failingAudit is a store whose audit cannot be written.
type failingAudit struct{ *memstore.Store }

func (failingAudit) RecordAudit(context.Context, operator.Entry) (operator.Entry, error) {
	return operator.Entry{}, &idempo.Error{Op: "audit", Code: "unavailable"}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, n int) (*memstore.Store, *operator.Service) {
		t.Helper()
		s := memstore.New(memstore.Options{})
		dead(t, s, "acme", n)
		dead(t, s, "other", 1)
		svc, err := operator.New(s, operator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return s, svc
	}
	list := func(t *testing.T, svc *operator.Service, by operator.Principal, f operator.FindMessages) []inbox.Receipt {
		t.Helper()
		page, err := svc.Messages(t.Context(), operator.ListMessagesParams{By: by, Find: f})
		if err != nil {
			t.Fatal(err)
		}
		return page.Messages
	}
	audit := func(t *testing.T, svc *operator.Service) []operator.Entry {
		t.Helper()
		page, err := svc.Audit(t.Context(), operator.ReadAuditParams{By: staff(operator.RoleAdmin)})
		if err != nil {
			t.Fatal(err)
		}
		return page.Entries
	}
	t.Run("of two who act on one message at once one does; the other is told that it moved, and both are audited", func(t *testing.T) {
		_, svc := open(t, 1)
		seen := list(t, svc, staff(operator.RoleOperator), operator.FindMessages{Tenant: "acme"})[0]
		act := func() error {
			_, err := svc.ActMessages(t.Context(), operator.MessagesParams{By: staff(operator.RoleOperator), Find: operator.FindMessages{Number: seen.Seq}, One: true, On: seen.Rev,
				Action: operator.ActionRetry, Reason: "fixed"})
			return err
		}
		if err := act(); err != nil {
			t.Fatal(err)
		}
		if err := act(); operator.CodeOf(err) != operator.CodeMoved {
			t.Errorf("the second: %v", err)
		}
		rows := audit(t, svc)
		if len(rows) != 2 || rows[0].Outcome != operator.OutcomeDone || rows[0].Before != "dead" || rows[0].After != "stored" || rows[1].Code != operator.CodeMoved ||
			rows[0].Key != operator.MessageKey(seen) {
			t.Errorf("%+v", rows)
		}
	})
	t.Run("the change and its audit row are committed together, or neither", func(t *testing.T) {
		s, _ := open(t, 2)
		svc, err := operator.New(failingAudit{s}, operator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, action := range []operator.Action{operator.ActionRetry, operator.ActionSkip, operator.ActionDiscard} {
			_, err := svc.ActMessages(t.Context(), operator.MessagesParams{By: staff(operator.RoleAdmin), Action: action, Reason: "x"})
			if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "unavailable" {
				t.Errorf("%s: %v", action, err)
			}
		}
		if rs := list(t, svc, staff(operator.RoleViewer), operator.FindMessages{Status: inbox.StatusDead}); len(rs) != 3 {
			t.Errorf("%d are still dead", len(rs))
		}
	})
	t.Run("who may not is told that there is nothing, and it is written down", func(t *testing.T) {
		_, svc := open(t, 1)
		for action, by := range map[operator.Action]operator.Principal{operator.ActionRetry: staff(operator.RoleViewer), operator.ActionSkip: staff(operator.RoleViewer),
			operator.ActionDiscard: staff(operator.RoleOperator)} {
			if _, err := svc.ActMessages(t.Context(), operator.MessagesParams{By: by, Action: action, Reason: "x"}); operator.CodeOf(err) != operator.CodeNotFound {
				t.Errorf("%s: %v", action, err)
			}
		}
		if rows := audit(t, svc); len(rows) != 3 || rows[0].Code != operator.CodeForbidden {
			t.Errorf("%+v", rows)
		}
		if _, err := svc.Messages(t.Context(), operator.ListMessagesParams{}); operator.CodeOf(err) != operator.CodeNotFound {
			t.Errorf("nobody: %v", err)
		}
	})
	t.Run("who is limited to tenants sees, counts and changes nothing of others", func(t *testing.T) {
		_, svc := open(t, 2)
		by := staff(operator.RoleAdmin, "other")
		if rs := list(t, svc, by, operator.FindMessages{}); len(rs) != 1 || rs[0].Message.Tenant != "other" {
			t.Errorf("%+v", rs)
		}
		if rs := list(t, svc, by, operator.FindMessages{Tenant: "acme"}); len(rs) != 0 {
			t.Errorf("%+v", rs)
		}
		counts, err := svc.Subscribers(t.Context(), operator.SubscribersParams{By: by})
		if err != nil || len(counts) != 1 || counts[0].Statuses[inbox.StatusDead] != 1 || counts[0].BlockedLanes != 1 {
			t.Errorf("%+v %v", counts, err)
		}
		got, err := svc.ActMessages(t.Context(), operator.MessagesParams{By: by, Action: operator.ActionDiscard, Reason: "x"})
		if err != nil || got.OK != 1 {
			t.Errorf("%+v %v", got, err)
		}
		if rs := list(t, svc, staff(operator.RoleViewer), operator.FindMessages{}); len(rs) != 2 {
			t.Errorf("%d are left", len(rs))
		}
		if _, err := svc.ReleaseLane(t.Context(), operator.ReleaseLaneParams{By: by, Tenant: "acme", Subscriber: "billing", Lane: "c-1", Reason: "x"}); operator.CodeOf(err) != operator.CodeNotFound {
			t.Errorf("release: %v", err)
		}
	})
	t.Run("a bulk of many batches does each once, stops, and goes on from its cursor", func(t *testing.T) {
		_, svc := open(t, 250)
		stop := make(chan struct{})
		p := operator.MessagesParams{By: staff(operator.RoleAdmin), Find: operator.FindMessages{Tenant: "acme"}, Action: operator.ActionRetry, Reason: "x", Stop: stop, Rate: 1e6}
		p.ProgressFunc = func(operator.Handled[inbox.Receipt]) { close(stop) }
		got, err := svc.ActMessages(t.Context(), p)
		if err != nil || !got.Stopped || got.OK != 100 || got.Next == "" {
			t.Fatalf("%+v %v", got, err)
		}
		p.Stop, p.ProgressFunc, p.Find.After = nil, nil, got.Next
		if got, err = svc.ActMessages(t.Context(), p); err != nil || got.OK != 150 || got.Skipped != 0 || got.Next != "" {
			t.Errorf("%d %d %v", got.OK, got.Skipped, err)
		}
		if rs := list(t, svc, p.By, operator.FindMessages{Status: inbox.StatusStored, Limit: 1000}); len(rs) != 250 {
			t.Errorf("%d are stored", len(rs))
		}
		if n := len(audit(t, svc)); n != 100 { // its first page
			t.Errorf("%d audit rows", n)
		}
		if _, err := svc.Messages(t.Context(), operator.ListMessagesParams{By: p.By, Find: operator.FindMessages{After: "garbage"}}); operator.CodeOf(err) != operator.CodeInvalid {
			t.Errorf("a cursor of nobody's: %v", err)
		}
	})
	t.Run("what is in doubt, or still the broker's, is not touched", func(t *testing.T) {
		s, svc := open(t, 0)
		for i, status := range []inbox.Status{inbox.StatusInDoubt, inbox.StatusStarted} {
			r := inbox.Receipt{Subscriber: "billing", Key: fmt.Sprintf("%-32d", 100+i), Status: status, Message: inbox.Message{Tenant: "acme", ID: string(status)}}
			if _, err := s.Inbox().Put(t.Context(), inbox.PutParams{Receipt: r}); err != nil {
				t.Fatal(err)
			}
			for _, action := range []operator.Action{operator.ActionRetry, operator.ActionSkip, operator.ActionDiscard} {
				got, err := svc.ActMessages(t.Context(), operator.MessagesParams{By: staff(operator.RoleAdmin), Action: action, Reason: "x",
					Find: operator.FindMessages{Tenant: "acme", Status: status}})
				if err != nil || got.OK != 0 || got.Skipped != 1 {
					t.Errorf("%s of %s: %+v %v", action, status, got, err)
				}
			}
		}
		shown, err := svc.Message(t.Context(), operator.ShowMessageParams{By: staff(operator.RoleViewer), Find: operator.FindMessages{Status: inbox.StatusInDoubt}})
		if err != nil || !slices.ContainsFunc(shown.Next, func(n operator.NextStep) bool {
			return n.Command == "idempo keys list --state in_doubt --operation inbox:billing"
		}) {
			t.Errorf("%+v %v", shown.Next, err)
		}
	})
}
