package operator_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// bed is a service over a memory store, and what it was told to count.
type bed struct {
	*testing.T
	store *memstore.Store
	now   time.Time
	ops   *operator.Service
	seen  []string
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, now: now()}
	b.store = memstore.New(memstore.Options{Clock: func() time.Time { return b.now }})
	ops, err := operator.New(b.store, operator.Config{ObserveFunc: func(a operator.Action, outcome string) { b.seen = append(b.seen, string(a)+" "+outcome) }})
	if err != nil {
		t.Fatal(err)
	}
	b.ops = ops
	return b
}

func (b *bed) claim(tenant, id string) idempo.AcquireParams {
	b.Helper()
	d := sha256.Sum256([]byte(tenant + id))
	p := idempo.AcquireParams{Key: idempo.Key{Tenant: tenant, Operation: "pay", ID: string(d[:])}, Hash: d[:], Recipe: "r", Guard: idempo.GuardLeased,
		OnCrash: idempo.OnCrashHold, Lease: time.Minute, Owner: "host/1"}
	copy(p.Token[:], d[:])
	a, err := b.store.Acquire(b.Context(), p)
	if err != nil || a.Verdict != idempo.VerdictRun {
		b.Fatal(a.Verdict, err)
	}
	return p
}

func (b *bed) doubt(tenant, id string) string {
	b.Helper()
	p := b.claim(tenant, id)
	if _, err := b.store.Release(b.Context(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateInDoubt, Note: "cut off"}); err != nil {
		b.Fatal(err)
	}
	return p.Key.Ref()
}

func (b *bed) done(tenant, id string, failing bool) string {
	b.Helper()
	p := b.claim(tenant, id)
	c := idempo.CompleteParams{Key: p.Key, Token: p.Token, Won: p, Attempt: 1, Kept: true, Retention: time.Hour, Tombstone: 10 * time.Hour,
		Result: idempo.Result{Status: 201, Body: []byte("answer"), Failing: failing}, Size: 6}
	if _, err := b.store.Complete(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	return p.Key.Ref()
}

func ann(tenants ...string) operator.Principal {
	return operator.Principal{Actor: "ann@host", Role: operator.RoleAdmin, Tenants: tenants, Channel: "cli"}
}

// why decides on the record as it is.
func (b *bed) why(by operator.Principal, ref string) operator.Why {
	w := operator.Why{By: by, Target: operator.Target{Ref: ref}, Reason: "seen in the bank portal", On: operator.Seen{State: idempo.StateInDoubt}}
	if s, err := b.ops.Show(b.Context(), operator.ShowParams{By: ann(), Target: w.Target}); err == nil {
		w.On = operator.SeenOf(s.Record)
	}
	return w
}

func (b *bed) state(ref string) idempo.State {
	b.Helper()
	s, err := b.ops.Show(b.Context(), operator.ShowParams{By: ann(), Target: operator.Target{Ref: ref}})
	if err != nil {
		return ""
	}
	return s.Record.State
}

func (b *bed) code(err error, want string) {
	b.Helper()
	if operator.CodeOf(err) != want || (want == "") != (err == nil) {
		b.Errorf("%v, want %q", err, want)
	}
}

func (b *bed) audit() (out []string) {
	b.Helper()
	page, err := b.ops.Audit(b.Context(), operator.ReadAuditParams{By: ann()})
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range page.Entries {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s>%s", e.Action, e.Outcome, e.Code, e.Before, e.After)))
	}
	return out
}

func TestResolve(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP21] [operations/OP27] only from in doubt, with a reason, audited either way", func(t *testing.T) {
		b := newBed(t)
		yes, no, done := b.doubt("a", "1"), b.doubt("a", "2"), b.done("a", "3", false)
		got, err := b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), yes), To: idempo.StateCompleted,
			Result: idempo.Result{Status: 200, Resource: idempo.Resource{Type: "charge", ID: "ch_91"}}})
		b.code(err, "")
		if r := got.Record; r.State != idempo.StateCompleted || r.Result.Resource.ID != "ch_91" || r.ExpiresAt.Sub(b.now) != 24*time.Hour || r.GoneAt.Sub(r.ExpiresAt) != 240*time.Hour {
			t.Errorf("%+v", r)
		}
		_, err = b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), no), To: idempo.StateFailed})
		b.code(err, "")
		_, err = b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), done), To: idempo.StateFailed})
		b.code(err, operator.CodeWrongState)
		silent := b.why(ann(), no)
		silent.Reason = " "
		_, err = b.ops.Resolve(t.Context(), operator.ResolveParams{Why: silent, To: idempo.StateFailed})
		b.code(err, operator.CodeInvalid)
		open := b.doubt("a", "4")
		_, err = b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), open)})
		b.code(err, operator.CodeInvalid)
		_, err = b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), open), Probe: true})
		b.code(err, operator.CodeUnsupported)
		want := []string{"resolve done  in_doubt>completed", "resolve done  in_doubt>failed", "resolve refused wrong_state completed>completed",
			"resolve refused invalid failed>failed", "resolve refused invalid in_doubt>in_doubt", "resolve refused unsupported in_doubt>in_doubt"}
		if got := b.audit(); !slices.Equal(got, want) {
			t.Errorf("%q\nwant\n%q", got, want)
		}
		if len(b.seen) != len(want) || b.seen[0] != "resolve done" || b.seen[2] != "resolve refused" {
			t.Errorf("observed %q", b.seen)
		}
	})
	t.Run("[operations/OP22] [security/SEC72] what moved is refused, with who did it; nothing goes without the attempt", func(t *testing.T) {
		b := newBed(t)
		ref := b.doubt("a", "1")
		first, second := b.why(operator.Principal{Actor: "bob@host", Role: operator.RoleOperator}, ref), b.why(ann(), ref)
		_, err := b.ops.Resolve(t.Context(), operator.ResolveParams{Why: first, To: idempo.StateFailed})
		b.code(err, "")
		_, err = b.ops.Resolve(t.Context(), operator.ResolveParams{Why: second, To: idempo.StateCompleted})
		b.code(err, operator.CodeMoved)
		if e, ok := errors.AsType[*operator.Error](err); !ok || e.By != "bob@host" || e.State != idempo.StateFailed || !strings.Contains(err.Error(), "is now failed, attempt 1, by bob@host") || len(e.Allowed) == 0 {
			t.Errorf("%+v", err)
		}
		blind := b.why(ann(), b.doubt("a", "2"))
		blind.On = operator.Seen{}
		_, err = b.ops.Resolve(t.Context(), operator.ResolveParams{Why: blind, To: idempo.StateFailed})
		b.code(err, operator.CodeInvalid)
	})
}

func TestSevere(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP8] [operations/OP24] [operations/OP25] severe actions want the reference once more", func(t *testing.T) {
		b := newBed(t)
		success, failing, doubt := b.done("a", "1", false), b.done("a", "2", true), b.doubt("a", "3")
		ctx := t.Context()
		_, err := b.ops.Retry(ctx, operator.RetryParams{Why: b.why(ann(), failing)})
		b.code(err, "")
		severe := func(ref string, do func(w operator.Why) error) {
			t.Helper()
			w, before := b.why(ann(), ref), b.state(ref)
			b.code(do(w), operator.CodeConfirmNeeded)
			w.Confirm = "yes"
			b.code(do(w), operator.CodeConfirmNeeded)
			if b.state(ref) != before {
				t.Error("changed without confirmation")
			}
			w.Confirm = ref
			b.code(do(w), "")
		}
		severe(success, func(w operator.Why) error {
			_, err := b.ops.Retry(ctx, operator.RetryParams{Why: w, Force: true})
			return err
		})
		severe(doubt, func(w operator.Why) error {
			_, err := b.ops.Purge(ctx, operator.PurgeParams{Why: w, InDoubt: true})
			return err
		})
		success = b.done("a", "4", false)
		_, err = b.ops.Purge(ctx, operator.PurgeParams{Why: b.why(ann(), success)})
		b.code(err, "")
		severe(success, func(w operator.Why) error {
			_, err := b.ops.Purge(ctx, operator.PurgeParams{Why: w, Tombstones: true})
			return err
		})
		if b.state(success) != "" || b.state(doubt) != "" {
			t.Error("purged keys are there")
		}
	})
}

func TestRightsOfPrincipals(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP20] [operations/UI3] [security/SEC73] role and tenant: allowed, or not found and equal to an unknown key", func(t *testing.T) {
		for _, role := range []operator.Role{"", operator.RoleViewer, operator.RoleOperator, operator.RoleAdmin} {
			for _, own := range []bool{true, false} {
				b := newBed(t)
				by := operator.Principal{Actor: "eve", Role: role, Tenants: []string{"mine"}}
				tenant := "other"
				if own {
					tenant = "mine"
				}
				unknown := (&operator.Error{Code: operator.CodeNotFound}).Error()
				allowed := func(what string, want bool, err error) {
					t.Helper()
					if (err == nil) != want || err != nil && err.Error() != unknown {
						t.Errorf("%q, own tenant %t, %s: %v", role, own, what, err)
					}
				}
				ctx := t.Context()
				doubt, failing, success := b.doubt(tenant, "1"), b.done(tenant, "2", true), b.done(tenant, "3", false)
				running := b.claim(tenant, "4").Key.Ref()
				reads := own && role != ""
				acts := own && (role == operator.RoleOperator || role == operator.RoleAdmin)
				admin := own && role == operator.RoleAdmin
				_, err := b.ops.Show(ctx, operator.ShowParams{By: by, Target: operator.Target{Ref: doubt}})
				allowed("show", reads, err)
				page, _ := b.ops.List(ctx, operator.ListParams{By: by})
				stats, _ := b.ops.Stats(ctx, operator.StatsParams{By: by})
				if (len(page.Records) == 4) != reads || len(page.Records) > 0 != reads || (stats.Of(idempo.StateInDoubt).Records == 1) != reads || stats.OldestPending.Since.IsZero() == reads {
					t.Errorf("%q, own tenant %t: lists %d, counts %+v", role, own, len(page.Records), stats)
				}
				_, err = b.ops.Resolve(ctx, operator.ResolveParams{Why: b.why(by, doubt), To: idempo.StateFailed})
				allowed("resolve", acts, err)
				_, err = b.ops.Retry(ctx, operator.RetryParams{Why: b.why(by, failing)})
				allowed("retry", acts, err)
				_, err = b.ops.Release(ctx, operator.ReleaseParams{Why: b.why(by, running)})
				allowed("release", acts, err)
				r, err := b.ops.Reveal(ctx, operator.RevealParams{Why: b.why(by, success)})
				allowed("reveal", admin, err)
				if (string(r.Result.Body) == "answer") != admin {
					t.Errorf("%q, own tenant %t: body %q", role, own, r.Result.Body)
				}
				_, err = b.ops.Purge(ctx, operator.PurgeParams{Why: b.why(by, success)})
				allowed("purge", admin, err)
				rows, _ := b.ops.Audit(ctx, operator.ReadAuditParams{By: by})
				if len(rows.Entries) > 0 != reads {
					t.Errorf("%q, own tenant %t: sees %d audit rows", role, own, len(rows.Entries))
				}
				rest := b.audit()
				if len(rest) != 5 && role != "" || role == "" && len(rest) != 0 {
					t.Errorf("%q, own tenant %t: audited %q", role, own, rest)
				}
			}
		}
	})
}

func TestLimitedLists(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	want := map[string]bool{}
	for i := range 30 {
		tenant := fmt.Sprintf("t%d", i%3)
		ref := b.done(tenant, fmt.Sprint(i), false)
		if tenant != "t1" {
			want[ref] = true
		}
	}
	by := ann("t2", "t0", "t0", "nobody")
	for _, limit := range []int{1, 3, 7, 100} {
		seen := map[string]int{}
		p := operator.ListParams{By: by, Find: operator.FindParams{Limit: limit}}
		for {
			page, err := b.ops.List(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Records {
				seen[r.Ref()]++
			}
			if page.Next == "" {
				break
			}
			p.Find.After = page.Next
		}
		if len(seen) != len(want) {
			t.Errorf("limit %d: %d keys, want %d", limit, len(seen), len(want))
		}
		for ref, n := range seen {
			if n != 1 || !want[ref] {
				t.Errorf("limit %d: %s is listed %d times", limit, ref, n)
			}
		}
	}
	if page, err := b.ops.List(t.Context(), operator.ListParams{By: by, Find: operator.FindParams{Tenant: "t1"}}); err != nil || len(page.Records) != 0 {
		t.Error(len(page.Records), err)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP9] a dry run says what would be done, and does nothing", func(t *testing.T) {
		b := newBed(t)
		ref := b.doubt("a", "1")
		w := b.why(ann(), ref)
		w.DryRun = true
		got, err := b.ops.Resolve(t.Context(), operator.ResolveParams{Why: w, To: idempo.StateFailed})
		b.code(err, "")
		if got.Record.State != idempo.StateFailed || b.state(ref) != idempo.StateInDoubt || len(b.audit()) != 0 {
			t.Error(got.Record.State, b.state(ref), b.audit())
		}
	})
}

func TestBulk(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP26] [operations/OP10] limit, what goes on, nothing twice", func(t *testing.T) {
		b := newBed(t)
		const n = 250
		for i := range n {
			b.doubt("a", fmt.Sprint(i))
		}
		b.done("a", "done", false)
		p := operator.BulkParams{By: ann(), Find: operator.FindParams{Tenant: "a"}, Do: operator.Change{Action: operator.ActionResolve, To: idempo.StateFailed},
			Reason: "the bank has none of them", Limit: 120, DryRun: true}
		plan, err := b.ops.Bulk(t.Context(), p)
		b.code(err, "")
		if plan.OK != 120 || len(plan.Sample) != 5 || plan.Next == "" || len(b.audit()) != 0 {
			t.Errorf("plan %+v", plan)
		}
		p.DryRun = false
		var steps []int
		p.ProgressFunc = func(g operator.Bulked) { steps = append(steps, g.OK) }
		got, err := b.ops.Bulk(t.Context(), p)
		b.code(err, "")
		if got.OK != 120 || got.Failed != 0 || got.Next != plan.Next || !slices.Equal(steps, []int{100, 120}) {
			t.Errorf("%+v %v", got, steps)
		}
		p.Find.After = got.Next
		stop := make(chan struct{})
		close(stop)
		p.Stop = stop
		got, err = b.ops.Bulk(t.Context(), p)
		b.code(err, "")
		if got.OK != 100 || !got.Stopped || got.Next == "" {
			t.Errorf("stopped: %+v", got)
		}
		p.Stop, p.Find.After, p.Limit = nil, "", 0
		got, err = b.ops.Bulk(t.Context(), p) // from the beginning
		b.code(err, "")
		if got.OK != 30 || got.Skipped != n-30+1 || got.Next != "" {
			t.Errorf("again: %+v", got)
		}
		rows := 0
		after := ""
		for {
			page, err := b.ops.Audit(t.Context(), operator.ReadAuditParams{By: ann(), Find: operator.AuditParams{After: after}})
			b.code(err, "")
			rows += len(page.Entries)
			if after = page.Next; after == "" {
				break
			}
		}
		if rows != n {
			t.Errorf("%d audit rows for %d changes", rows, n)
		}
	})
	t.Run("[operations/OP8] a severe bulk wants its name", func(t *testing.T) {
		b := newBed(t)
		ref := b.done("a", "1", false)
		p := operator.BulkParams{By: ann(), Do: operator.Change{Action: operator.ActionPurge, Tombstones: true}, Reason: "the customer left"}
		_, err := b.ops.Bulk(t.Context(), p)
		b.code(err, operator.CodeConfirmNeeded)
		if b.state(ref) != idempo.StateCompleted {
			t.Error("purged")
		}
		p.Confirm = "purge"
		_, err = b.ops.Bulk(t.Context(), p)
		b.code(err, "")
		p.By.Role = operator.RoleOperator
		_, err = b.ops.Bulk(t.Context(), p)
		b.code(err, operator.CodeNotFound)
		p.By.Role, p.Reason = operator.RoleAdmin, ""
		_, err = b.ops.Bulk(t.Context(), p)
		b.code(err, operator.CodeInvalid)
		p.Reason = strings.Repeat("x", 5000)
		_, err = b.ops.Bulk(t.Context(), p)
		b.code(err, operator.CodeInvalid)
		want := []string{"purge refused confirm_needed >", "purge done  completed>", "purge refused forbidden >", "purge refused invalid >", "purge refused invalid >"}
		if got := b.audit(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestShow(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP19] a key's timeline: attempts, and what operators did", func(t *testing.T) {
		b := newBed(t)
		ref := b.doubt("a", "1")
		b.now = b.now.Add(time.Minute)
		_, err := b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), ref), To: idempo.StateFailed})
		b.code(err, "")
		b.now = b.now.Add(time.Minute)
		b.claim("a", "1")
		s, err := b.ops.Show(t.Context(), operator.ShowParams{By: ann(), Target: operator.Target{Ref: strings.ToUpper(ref)}})
		b.code(err, "")
		var got []string
		for _, m := range s.Timeline {
			got = append(got, fmt.Sprintf("%s %d %s %s", m.At.Format("04:05"), m.Attempt, m.What, m.Who))
		}
		want := []string{"00:00 1 claimed host/1", "01:00 1 in_doubt host/1", "01:00 1 resolve: in_doubt → failed ann@host", "02:00 2 claimed host/1"}
		if !slices.Equal(got, want) || len(s.Next) < 2 || len(s.Attempts) != 1 || len(s.Audit) != 1 {
			t.Errorf("%q\nwant\n%q\n%+v", got, want, s.Next)
		}
	})
}

// bare is a store that can do nothing for operators.
type bare struct{ idempo.Store }

func TestUnsupported(t *testing.T) {
	t.Parallel()
	ops, err := operator.New(bare{}, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, list := ops.List(ctx, operator.ListParams{By: ann()})
	_, show := ops.Show(ctx, operator.ShowParams{By: ann()})
	_, change := ops.Release(ctx, operator.ReleaseParams{Why: operator.Why{By: ann()}})
	_, bulk := ops.Bulk(ctx, operator.BulkParams{By: ann()})
	_, audit := ops.Audit(ctx, operator.ReadAuditParams{By: ann()})
	_, stats := ops.Stats(ctx, operator.StatsParams{By: ann()})
	for _, err := range []error{list, show, change, bulk, audit, stats} {
		if show == nil || operator.CodeOf(err) != operator.CodeUnsupported && err != show {
			t.Error(err)
		}
	}
	if _, err := operator.New(nil, operator.Config{}); err == nil {
		t.Error("a service without a store")
	}
}
