package idempo_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, e *idempo.Engine, id string) *idempo.Claim {
		t.Helper()
		b, err := e.Begin(t.Context(), request("send", id, "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
		return b.Claim
	}
	t.Run("[stores/E15] settled twice", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp)
		c := begin(t, e, "a")
		if err := errors.Join(c.Complete(t.Context(), okResult), c.Complete(t.Context(), okResult)); err != nil {
			t.Error("equal results:", err)
		}
		wantCode(t, c.Complete(t.Context(), idempo.Result{Status: 9}), "wrong_state")
		wantCode(t, c.Release(t.Context(), "x"), "wrong_state")
		b, err := e.Begin(t.Context(), request("send", "a", "1"))
		wantVerdict(t, b, err, idempo.VerdictReplay)
		if !b.Record.Result.Equal(okResult) {
			t.Error("the first result did not stay")
		}
		c = begin(t, e, "b")
		if err := errors.Join(c.Release(t.Context(), "x"), c.Release(t.Context(), "x")); err != nil {
			t.Error("two releases:", err)
		}
		wantCode(t, c.Complete(t.Context(), okResult), "wrong_state")
	})
	t.Run("[stores/E16] any bytes come back; nothing is shared with the caller", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp)
		for i, r := range []idempo.Result{
			{}, {Body: []byte{}}, {Body: []byte("null")}, {Body: []byte("0")}, {Body: []byte{0, 0xff, 0xfe}}, {Status: -1},
			{Header: [][2]string{{"A", ""}, {"A", "\x00\xff"}, {"B", "x"}}}, {Failing: true, Body: []byte("false")},
		} {
			id := fmt.Sprint("k", i)
			want := idempo.Result{Status: r.Status, Failing: r.Failing, Body: bytes.Clone(r.Body), Header: append([][2]string(nil), r.Header...)}
			if err := begin(t, e, id).Complete(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			for j := range r.Body {
				r.Body[j] ^= 0x55
			}
			for range 2 {
				b, err := e.Begin(t.Context(), request("send", id, "1"))
				wantVerdict(t, b, err, idempo.VerdictReplay)
				if !b.Record.Result.Equal(want) {
					t.Errorf("%d: %+v, want %+v", i, b.Record.Result, want)
				}
				for j := range b.Record.Result.Body {
					b.Record.Result.Body[j] = 'x'
				}
			}
		}
	})
	t.Run("[stores/E17] a body over the limit: completed, not kept, with size and digest", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "send", Guard: idempo.GuardLeased, MaxResult: 4})
		body := []byte("12345")
		if err := begin(t, e, "k").Complete(t.Context(), idempo.Result{Status: 200, Body: body}); err != nil {
			t.Fatal(err)
		}
		b, err := e.Begin(t.Context(), request("send", "k", "1"))
		wantVerdict(t, b, err, idempo.VerdictReplay)
		sum := sha256.Sum256(body)
		if r := b.Record; r.BodyKept || r.Result.Body != nil || r.BodySize != 5 || !bytes.Equal(r.BodySHA256, sum[:]) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[stores/E18] issued keys", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "send", Guard: idempo.GuardLeased, Issued: true},
				idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic, Issued: true})
			key := func(id string) idempo.Key { return idempo.Key{Tenant: "acct_7", Operation: "send", ID: id} }
			for _, id := range []string{"a", "b", "c"} {
				if r, err := e.Issue(t.Context(), key(id)); err != nil || r.State != idempo.StateIssued {
					t.Fatal(r.State, err)
				}
			}
			_, err := e.Begin(t.Context(), request("send", "never", "1"))
			wantCode(t, err, "not_issued")
			c := begin(t, e, "a")
			if err := c.Forget(t.Context()); err != nil {
				t.Fatal(err)
			}
			b, err := e.Begin(t.Context(), request("send", "a", "other input: bound to none"))
			wantVerdict(t, b, err, idempo.VerdictRun)
			if err := errors.Join(b.Claim.IssueNext("next"), b.Claim.Complete(t.Context(), okResult)); err != nil {
				t.Fatal(err)
			}
			b, err = e.Begin(t.Context(), request("send", "a", "other input: bound to none"))
			wantVerdict(t, b, err, idempo.VerdictReplay)
			b, err = e.Begin(t.Context(), request("send", "next", "1"))
			wantVerdict(t, b, err, idempo.VerdictRun)
			c = begin(t, e, "c")
			if err := c.Release(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			b, err = e.Begin(t.Context(), request("send", "c", "other"))
			wantVerdict(t, b, err, idempo.VerdictMismatch)
			time.Sleep(2 * time.Hour)
			_, err = e.Begin(t.Context(), request("send", "b", "1"))
			wantCode(t, err, "not_issued")
			e.Drain(contextOver(t))
		})
	})
	t.Run("[stores/E19] the derived key is fixed by a vector and equal on every attempt", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "create-order", Guard: idempo.GuardLeased})
		const want = "6be8f39f-c03c-4adc-b47a-d559a3522431"
		for range 2 {
			b, err := e.Begin(t.Context(), request("create-order", "o-123", "1"))
			wantVerdict(t, b, err, idempo.VerdictRun)
			if b.Claim.Derive("") != want || b.Record.DerivedKey != want || b.Claim.Derive("x") == want {
				t.Errorf("%s %s", b.Claim.Derive(""), b.Record.DerivedKey)
			}
			if err := b.Claim.Release(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("[stores/E26] harmless repetition needs a reason and a leased guard", func(t *testing.T) {
		ok := idempo.Operation{Name: "a", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashRerun, RepeatHarmless: "sets the address"}
		newEngine(t, idempo.Config{}, ok)
		bad := ok
		bad.RepeatHarmless = ""
		worse := ok
		worse.Guard, worse.OnCrash = idempo.GuardAtomic, ""
		for _, op := range []idempo.Operation{bad, worse} {
			if _, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: digestKeys(), Operations: []idempo.Operation{op}}); err == nil {
				t.Errorf("accepted %+v", op)
			}
		}
	})
	t.Run("[stores/E27] references are there after a doubt, at completion and in the tombstone, fenced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, idempo.Config{}, leasedOp, atomicOp)
			lookup := func(op, id string) idempo.Record {
				r, err := e.Lookup(t.Context(), idempo.Key{Tenant: "acct_7", Operation: op, ID: id})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			c := begin(t, e, "k")
			for i := range 8 {
				if err := c.Refer(t.Context(), "charge", fmt.Sprint("ch_", i)); err != nil {
					t.Fatal(err)
				}
			}
			wantCode(t, c.Refer(t.Context(), "charge", "ninth"), "invalid")
			wantCode(t, c.Refer(t.Context(), "charge", strings.Repeat("x", 256)), "invalid")
			if r := lookup("send", "k"); len(r.References) != 8 || r.References[7] != (idempo.Resource{Type: "charge", ID: "ch_7"}) {
				t.Error("not committed at once:", r.References)
			}
			if err := c.Doubt(t.Context(), ""); err != nil || len(lookup("send", "k").References) != 8 {
				t.Error("in doubt:", err)
			}
			_, err := e.Do(t.Context(), request("pay", "k", "1"), func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
				return okResult, c.Refer(ctx, "row", "9")
			})
			if err != nil || len(lookup("pay", "k").References) != 1 {
				t.Error("atomic:", err)
			}
			time.Sleep(25 * time.Hour)
			if r := lookup("pay", "k"); r.State != idempo.StateExpired || len(r.References) != 1 {
				t.Error("tombstone:", r.State, r.References)
			}
		})
	})
	t.Run("[stores/T2, T3] retention is fixed at completion, and then only the fact stays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			op := idempo.Operation{Name: "send", Guard: idempo.GuardLeased, Horizons: map[string]time.Duration{"webhook_replay": 48 * time.Hour}}
			e := newEngine(t, idempo.Config{}, op)
			if got := e.Operations()[0]; got.Retention != 48*time.Hour || got.Tombstone != 480*time.Hour {
				t.Errorf("[stores/T1] effective retention %v, tombstone %v", got.Retention, got.Tombstone)
			}
			for _, id := range []string{"a", "b"} {
				c := begin(t, e, id)
				if id == "b" {
					if err := c.Retain(time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Complete(t.Context(), idempo.Result{Status: 201, Body: []byte("x"), Resource: idempo.Resource{Type: "p", ID: "1"}}); err != nil {
					t.Fatal(err)
				}
				wantCode(t, c.Retain(-1), "invalid")
				wantCode(t, c.Retain(idempo.Forever), "invalid")
			}
			time.Sleep(2 * time.Hour)
			b, err := e.Begin(t.Context(), request("send", "a", "1"))
			wantVerdict(t, b, err, idempo.VerdictReplay)
			b, err = e.Begin(t.Context(), request("send", "b", "1"))
			wantVerdict(t, b, err, idempo.VerdictExpired)
			if b.Record.Result.Resource.ID != "1" || b.Record.Result.Body != nil {
				t.Errorf("%+v", b.Record.Result)
			}
			b, err = e.Begin(t.Context(), request("send", "b", "other"))
			wantVerdict(t, b, err, idempo.VerdictExpired)
			if !b.Record.Result.Resource.IsZero() {
				t.Error("[stores/E3] another fingerprint saw the resource")
			}
			time.Sleep(47 * time.Hour)
			b, err = e.Begin(t.Context(), request("send", "a", "1"))
			wantVerdict(t, b, err, idempo.VerdictExpired)
		})
	})
	t.Run("[stores/E24] drain refuses what is new, lets the running end, frees the never started", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp, idempo.Operation{Name: "mark", Guard: idempo.GuardLeased, StartMark: true})
		running := begin(t, e, "a")
		b, err := e.Begin(t.Context(), request("mark", "b", "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
		if left := e.Drain(contextOver(t)); left != 1 {
			t.Errorf("%d left, want the running one", left)
		}
		_, err = e.Begin(t.Context(), request("send", "c", "1"))
		if !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err) {
			t.Error(err)
		}
		if r, err := e.Lookup(t.Context(), idempo.Key{Tenant: "acct_7", Operation: "mark", ID: "b"}); err != nil || r.State != idempo.StateFailed {
			t.Error(r.State, err)
		}
		if err := running.Complete(t.Context(), okResult); err != nil {
			t.Error("a running one may end:", err)
		}
		if left := e.Drain(t.Context()); left != 0 {
			t.Errorf("%d left", left)
		}
	})
}

func TestUniqueIdentity(t *testing.T) {
	t.Parallel()
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		t.Run("[http/H44] one business identity, two keys: "+string(guard), func(t *testing.T) {
			var l ledger
			e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "pay", Guard: guard})
			do := func(id string, work func(context.Context, *idempo.Claim) (idempo.Result, error)) (idempo.Begun, error) {
				req := request("pay", id, id)
				req.Unique = []string{"transaction 7"}
				return e.Do(t.Context(), req, work)
			}
			effect := func(context.Context, *idempo.Claim) (idempo.Result, error) {
				l.n.Add(1)
				return idempo.Result{Status: 201, Body: []byte("secret"), Resource: idempo.Resource{Type: "p", ID: "1"}}, nil
			}
			if _, err := do("k0", func(context.Context, *idempo.Claim) (idempo.Result, error) {
				return idempo.Result{}, idempo.NothingHappened(errors.New("x"))
			}); err == nil {
				t.Fatal("no error")
			}
			b, err := do("k1", func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
				if b, _ := do2(e, "k2"); b.Verdict != idempo.VerdictInProgress {
					t.Errorf("while it runs: %v", b.Verdict)
				}
				return effect(ctx, c)
			})
			wantVerdict(t, b, err, idempo.VerdictRun)
			b, err = do("k1", effect)
			wantVerdict(t, b, err, idempo.VerdictReplay)
			if b.Identity {
				t.Error("the own key is no foreign identity")
			}
			b, err = do("k3", effect)
			if err == nil || !b.Identity || b.Record.Result.Body != nil || b.Record.Result.Resource.ID != "1" {
				t.Errorf("another key: %+v %v", b, err)
			}
			l.want(t, 1)
		})
	}
}

func do2(e *idempo.Engine, id string) (idempo.Begun, error) {
	req := request("pay", id, id)
	req.Unique = []string{"transaction 7"}
	return e.Do(context.Background(), req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return okResult, nil })
}
