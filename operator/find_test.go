package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func record() idempo.Record {
	n := now()
	return idempo.Record{Key: idempo.Key{Tenant: "acct_7", Operation: "pay", ID: strings.Repeat("k", 32)}, State: idempo.StateCompleted, Guard: idempo.GuardLeased,
		OnCrash: idempo.OnCrashHold, Surface: "http", Attempt: 1, Format: 1, CreatedAt: n.Add(-time.Hour), ClaimedAt: n.Add(-time.Hour), StartedAt: n.Add(-time.Hour),
		LeaseUntil: n.Add(-time.Hour + 30*time.Second), ChangedAt: n.Add(-time.Minute), CompletedAt: n.Add(-time.Minute), ExpiresAt: n.Add(time.Hour), GoneAt: n.Add(2 * time.Hour),
		Result: idempo.Result{Status: 201, Resource: idempo.Resource{Type: "charge", ID: "ch_1"}}}
}

func TestFiltersIntersect(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP18] each filter, and all of them together", func(t *testing.T) {
		t.Parallel()
		r := record()
		match := func(p operator.FindParams, want bool) {
			t.Helper()
			if _, ok := p.Match(r, now()); ok != want {
				t.Errorf("%+v: %v", p, ok)
			}
		}
		match(operator.FindParams{}, true)
		for _, both := range [][2]operator.FindParams{
			{{Ref: r.Ref()}, {Ref: "k_" + strings.Repeat("a", 26)}},
			{{Tenant: "acct_7"}, {Tenant: "acct_"}},
			{{Operation: "pay"}, {Operation: "pa"}},
			{{Surface: "http"}, {Surface: "run"}},
			{{State: idempo.StateCompleted}, {State: idempo.StatePending}},
			{{Outcome: operator.OutcomeCompleted}, {Outcome: operator.OutcomeFailing}},
			{{OlderThan: time.Minute}, {OlderThan: time.Minute + 1}},
			{{NewerThan: time.Minute + 1}, {NewerThan: time.Minute}},
			{{Reference: idempo.Resource{Type: "charge", ID: "ch_1"}}, {Reference: idempo.Resource{Type: "charge", ID: "ch_2"}}},
		} {
			match(both[0], true)
			match(both[1], false)
			p := both[1]
			p.Operation = "pay"
			match(p, p == operator.FindParams{Operation: "pay"})
		}
		match(operator.FindParams{Tenant: "acct_7", Operation: "pay", Surface: "http", State: idempo.StateCompleted, Outcome: operator.OutcomeCompleted, OlderThan: time.Second, NewerThan: time.Hour}, true)
		match(operator.FindParams{Tenant: "acct_7", Operation: "pay", Surface: "http", State: idempo.StateCompleted, Outcome: operator.OutcomeCompleted, OlderThan: time.Hour}, false)
	})
	t.Run("the state that counts is the one in effect", func(t *testing.T) {
		t.Parallel()
		effective := func(change func(*idempo.Record), want idempo.State, stored idempo.State) {
			t.Helper()
			r := record()
			change(&r)
			p := operator.FindParams{State: want}
			eff, ok := p.Match(r, now())
			if !ok || eff.State != want {
				t.Errorf("%s is %s, want %s", r.State, eff.State, want)
			}
			if slices.Contains(p.Stored(), r.State) {
				return
			}
			t.Errorf("a store that looks for %v does not find %s", p.Stored(), r.State)
		}
		effective(func(r *idempo.Record) { r.State = idempo.StatePending }, idempo.StateInDoubt, idempo.StatePending)
		effective(func(r *idempo.Record) { r.State, r.OnCrash = idempo.StatePending, idempo.OnCrashProbe }, idempo.StatePending, idempo.StatePending)
		effective(func(r *idempo.Record) { r.ExpiresAt = now() }, idempo.StateExpired, idempo.StateCompleted)
		r := record()
		r.GoneAt, r.ExpiresAt = now(), now().Add(-time.Second)
		if _, ok := (operator.FindParams{}).Match(r, now()); ok {
			t.Error("a record that is gone is listed")
		}
		if (operator.FindParams{}).Stored() != nil {
			t.Error("any state")
		}
	})
}

func TestParams(t *testing.T) {
	t.Parallel()
	ok := func(p operator.FindParams, limit int) {
		t.Helper()
		if q, err := p.WithDefaults(); err != nil || q.Limit != limit {
			t.Errorf("%+v: %d %v", p, q.Limit, err)
		}
	}
	bad := func(p operator.FindParams) {
		t.Helper()
		if _, err := p.WithDefaults(); err == nil {
			t.Errorf("%+v is accepted", p)
		}
	}
	ok(operator.FindParams{}, 100)
	ok(operator.FindParams{Limit: 5}, 5)
	ok(operator.FindParams{Limit: 5000, Ref: record().Ref(), After: operator.Cursor(record().Key), State: "pending", Outcome: "completed_failing"}, 1000)
	bad(operator.FindParams{Limit: -1})
	bad(operator.FindParams{OlderThan: -1})
	bad(operator.FindParams{State: "done"})
	bad(operator.FindParams{Outcome: "fine"})
	bad(operator.FindParams{Ref: "k_x"})
	bad(operator.FindParams{After: "x"})
}

func TestRef(t *testing.T) {
	t.Parallel()
	key := record().Key
	b, err := operator.ParseRef(key.Ref())
	if err != nil || string(b) != key.ID[:16] {
		t.Errorf("%q %v", b, err)
	}
	if b, err := operator.ParseRef(strings.ToUpper(key.Ref())); err != nil || string(b) != key.ID[:16] {
		t.Errorf("upper case: %v", err)
	}
	for _, s := range []string{"", "k_", key.Ref()[1:], key.Ref() + "a", "k_" + strings.Repeat("1", 26), "x_" + strings.Repeat("a", 26)} {
		if _, err := operator.ParseRef(s); err == nil {
			t.Errorf("%q is a reference", s)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add(operator.Cursor(record().Key))
	f.Add("W10")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := operator.ParseCursor(s)
		if err != nil {
			if !errors.Is(err, operator.ErrCursor) {
				t.Fatal(err)
			}
			return
		}
		if again, err := operator.ParseCursor(operator.Cursor(k)); err != nil || again != k {
			t.Fatalf("%v %v", again, err)
		}
	})
}

// lister answers with fixed records.
type lister []idempo.Record

func (l lister) List(_ context.Context, p operator.FindParams) (operator.Page, error) {
	var page operator.Page
	for _, r := range l {
		if eff, ok := p.Match(r, now()); ok && len(page.Records) < p.Limit {
			page.Records = append(page.Records, eff)
		}
	}
	return page, nil
}

func TestStuck(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP18] stuck is pending for over three times as long as usual", func(t *testing.T) {
		t.Parallel()
		var l lister
		for i := range 9 {
			r := record()
			r.ClaimedAt = r.CompletedAt.Add(-time.Duration(i+1) * time.Second)
			l = append(l, r)
		}
		usual, known, err := operator.Usual(t.Context(), l, "pay")
		if err != nil || !known || usual != 5*time.Second {
			t.Fatal(usual, known, err)
		}
		if _, known, err := operator.Usual(t.Context(), l[:4], "pay"); known || err != nil {
			t.Error("four records tell what is usual")
		}
		r := record()
		r.State, r.Now, r.LeaseUntil = idempo.StatePending, now(), now().Add(time.Second)
		stuck := func(age time.Duration, known, want bool) {
			t.Helper()
			r.ClaimedAt, r.ChangedAt = now().Add(-age), now().Add(-9*time.Second)
			if got := operator.Stuck(r, usual, known); got != want {
				t.Errorf("age %v, usual known %v: %v", age, known, got)
			}
		}
		stuck(15*time.Second, true, false)
		stuck(15*time.Second+1, true, true)
		stuck(30*time.Second, false, false) // a lease of 10 s
		stuck(31*time.Second, false, true)
		r.State = idempo.StateCompleted
		stuck(time.Hour, true, false)
	})
}

func ExampleParseRef() {
	b, err := operator.ParseRef("k_nnvww23lnnvww23lnnvww23lnm")
	fmt.Printf("%s %v", b, err)
	// Output: kkkkkkkkkkkkkkkk <nil>
}
