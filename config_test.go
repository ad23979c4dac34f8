package idempo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// plain is a store without any further ability.
type plain struct{ idempo.Store }

func TestDeclarations(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E2] every mistake in one error, nothing accepted", func(t *testing.T) {
		_, err := idempo.New(plain{memstore.New(memstore.Options{})}, idempo.Config{
			DigestKeys: []idempo.Secret{{ID: "short", Value: []byte("x")}, {ID: "same", Value: bytes.Repeat([]byte{7}, 32)}},
			Operations: []idempo.Operation{
				{Name: "none"}, {Name: "bad name", Guard: idempo.GuardLeased}, {Name: "a", Guard: idempo.GuardAtomic},
				{Name: "p", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe}, {Name: "r", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashRerun},
				{Name: "l", Guard: idempo.GuardLeased, Lease: time.Millisecond}, {Name: "n", Guard: idempo.GuardLeased, Retention: -1},
				{Name: "h", Guard: idempo.GuardLeased, Horizons: map[string]time.Duration{"someday": time.Hour}},
				{Name: "s", Guard: idempo.GuardLeased, Retention: time.Minute, Horizons: map[string]time.Duration{"client_retry": time.Hour}},
				{Name: "d", Guard: idempo.GuardLeased}, {Name: "d", Guard: idempo.GuardLeased, Lease: time.Minute},
				{Name: "f", Guard: idempo.GuardLeased, Retention: idempo.Forever},
			},
			Wait: 2 * time.Minute, MaxRun: -1, Renew: 20 * time.Second,
		})
		if err == nil {
			t.Fatal("accepted")
		}
		for _, want := range []string{`DigestKeys[0] "short"`, `DigestKeys[1] "same"`, `operation "none": guard not declared`, `operation "bad name": name`,
			`operation "a": guard atomic needs`, `operation "p": OnCrashProbe without ProbeFunc`, `operation "r": OnCrashRerun`, `operation "l": Lease`,
			`operation "n": Retention is negative`, `operation "h": horizon "someday"`, `operation "s": Retention`, `operation "d": declared twice`,
			`operation "f": Retention cannot be`, "Wait", "MaxRun is negative", "Renew"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no word of %s in:\n%v", want, err)
			}
		}
	})
	t.Run("[stores/E2] declaring the same again is fine; nothing is declared by a bad call", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp)
		if err := e.Declare(leasedOp); err != nil {
			t.Error(err)
		}
		if err := e.Declare(idempo.Operation{Name: "new", Guard: idempo.GuardLeased}, idempo.Operation{Name: "bad"}); err == nil || len(e.Operations()) != 1 {
			t.Error(err, len(e.Operations()))
		}
	})
}

func TestRedeclare(t *testing.T) {
	t.Parallel()
	e := newEngine(t, idempo.Config{}, leasedOp)
	longer := leasedOp
	longer.Retention, longer.Lease = 48*time.Hour, time.Minute
	if err := e.Declare(longer); err == nil {
		t.Error("Declare changed an operation")
	}
	b, err := e.Begin(t.Context(), idempo.Request{Key: idempo.Key{Tenant: "t", Operation: leasedOp.Name, ID: "runs"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Redeclare(longer); err != nil {
		t.Fatal(err)
	}
	if op := e.Operations()[0]; op.Retention != 48*time.Hour || op.Lease != time.Minute || op.MaxRun == 0 {
		t.Errorf("not taken: %+v", op)
	}
	atomic := longer
	atomic.Guard = idempo.GuardAtomic
	twin := longer
	twin.Lease = 2 * time.Minute
	for _, bad := range [][]idempo.Operation{{atomic}, {longer, twin}, {longer, {Name: "bad"}}} {
		if err := e.Redeclare(bad...); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
	if ops := e.Operations(); len(ops) != 1 || ops[0].Lease != time.Minute {
		t.Errorf("a refused call changed %+v", ops)
	}
	if err := b.Claim.Complete(t.Context(), idempo.Result{Status: 200}); err != nil {
		t.Fatal(err)
	}
	rec, err := e.Lookup(t.Context(), idempo.Key{Tenant: "t", Operation: leasedOp.Name, ID: "runs"})
	if err != nil || rec.ExpiresAt.Sub(rec.CompletedAt) != 24*time.Hour {
		t.Errorf("a running claim changed its retention: %v %v", rec.ExpiresAt.Sub(rec.CompletedAt), err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E1] the limits of each field, without a store call", func(t *testing.T) {
		s := newFaulty()
		long := strings.Repeat("o", 200)
		e := engineOn(t, s, idempo.Config{}, leasedOp, idempo.Operation{Name: long, Guard: idempo.GuardLeased})
		ok := func(tenant, op, id string) {
			t.Helper()
			if _, err := e.Begin(t.Context(), idempo.Request{Key: idempo.Key{Tenant: tenant, Operation: op, ID: id}}); err != nil {
				t.Errorf("refused: %v", err)
			}
		}
		bad := func(tenant, id string) {
			t.Helper()
			n := s.total()
			_, err := e.Begin(t.Context(), idempo.Request{Key: idempo.Key{Tenant: tenant, Operation: "send", ID: id}})
			wantCode(t, err, "invalid")
			if s.total() != n {
				t.Error("a store call")
			}
		}
		ok("t", "send", "x")
		ok(strings.Repeat("é", 127)+"x", "send", "x")
		ok("t", long, "x")
		ok("t", "send", strings.Repeat("\x00", 2064))
		bad("", "x")
		bad(strings.Repeat("x", 256), "x")
		bad("a\x7f", "x")
		bad("a\u0085", "x")
		bad("a\xff", "x")
		bad("t", "")
		bad("t", strings.Repeat("x", 2065))
	})
	t.Run("[stores/E1] [security/SEC1, SEC3] keys that differ anywhere are different keys", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp, idempo.Operation{Name: "send2", Guard: idempo.GuardLeased})
		seen := map[string]string{}
		for _, k := range []struct{ tenant, op, principal, id string }{
			{"ab", "send", "", "c"}, {"a", "send", "", "bc"}, {"a", "send", "b", "c"}, {"a", "send", "", "b\x00c"}, {"a", "send2", "", "c"}, {"a", "send", "", "2c"},
			{"A", "send", "", "c"}, {"ä", "send", "", "c"}, {"a ", "send", "", "c"}, {"a", "send", "", "c"}, {"a", "send", "", "c "}, {"a", "send", "", "C"},
			{"a", "send", "principal", "c"}, {"a", "send", "", "principalbc"}, {"a", "send", "b", "\x00\x00\x00\x01c"},
		} {
			ref := e.Ref(idempo.Key{Tenant: k.tenant, Operation: k.op, ID: k.id}, k.principal)
			if other, twice := seen[ref]; twice || len(ref) != 28 {
				t.Errorf("%q and %q share %s", other, k, ref)
			}
			seen[ref] = fmt.Sprint(k)
		}
	})
	t.Run("[security/SEC4] principals of one tenant never share a key", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp)
		for _, p := range []string{"", "anna", "bert"} {
			req := request("send", "k", "1")
			req.Principal = p
			b, err := e.Begin(t.Context(), req)
			wantVerdict(t, b, err, idempo.VerdictRun)
			if r, err := e.LookupFor(t.Context(), req.Key, p); err != nil || r.Ref() != b.Record.Ref() {
				t.Error(err)
			}
		}
	})
	t.Run("[security/SEC34] secrets, tokens and keys never print", func(t *testing.T) {
		s := idempo.Secret{ID: "d1", Value: []byte("canary-secret")}
		k := idempo.Key{Tenant: "canary-tenant", Operation: "op", ID: "canary-id"}
		var tok idempo.Token
		copy(tok[:], "canary-token----")
		for _, v := range []any{s, &s, []idempo.Secret{s}, k, &k, tok, idempo.Record{Token: tok}, map[string]any{"s": s}} {
			j, _ := json.Marshal(v)
			var log bytes.Buffer
			slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
			for _, out := range []string{fmt.Sprintf("%v %+v %#v %s", v, v, v, v), log.String(), string(j)} {
				if strings.Contains(out, "canary-secret") || strings.Contains(out, "canary-token") || strings.Contains(out, "Y2FuYXJ5") {
					t.Errorf("%T prints %s", v, out)
				}
			}
		}
		if out := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Contains(out, "canary") {
			t.Error(out)
		}
	})
}

func TestRotation(t *testing.T) {
	t.Parallel()
	d1, d2 := idempo.Secret{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}, idempo.Secret{ID: "d2", Value: []byte("fedcba9876543210fedcba9876543210")}
	steps := [][]idempo.Secret{{d1}, {d1, d2}, {d2, d1}, {d2}}
	for _, op := range []idempo.Operation{atomicOp, {Name: "pay", Guard: idempo.GuardLeased}} {
		for i := range steps[:3] {
			t.Run(fmt.Sprintf("[stores/E23] [security/SEC31] one step apart, %d, %s: one run", i, op.Guard), func(t *testing.T) {
				t.Parallel()
				s := memstore.New(memstore.Options{})
				engines := []*idempo.Engine{engineOn(t, s, idempo.Config{DigestKeys: steps[i]}, op), engineOn(t, s, idempo.Config{DigestKeys: steps[i+1]}, op)}
				for first := range engines {
					id := fmt.Sprint("k", first)
					var l ledger
					work := func(context.Context, *idempo.Claim) (idempo.Result, error) {
						b, err := engines[1-first].Do(context.Background(), request("pay", id, "1"), l.outside(okResult, nil))
						wantVerdict(t, b, err, idempo.VerdictInProgress)
						l.n.Add(1)
						return okResult, nil
					}
					b, err := engines[first].Do(t.Context(), request("pay", id, "1"), work)
					wantVerdict(t, b, err, idempo.VerdictRun)
					b, err = engines[1-first].Do(t.Context(), request("pay", id, "1"), l.outside(okResult, nil))
					wantVerdict(t, b, err, idempo.VerdictReplay)
					b, err = engines[1-first].Do(t.Context(), request("pay", id, "2"), l.outside(okResult, nil))
					wantVerdict(t, b, err, idempo.VerdictMismatch)
					l.want(t, 1)
				}
			})
		}
	}
	t.Run("[stores/E6] [security/SEC28] a record under an unknown recipe or digest key is unreadable: no match, no mismatch, no run", func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		both := engineOn(t, s, idempo.Config{DigestKeys: []idempo.Secret{d1, d2}}, leasedOp)
		b, err := both.Begin(t.Context(), request("send", "k", "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
		if err := b.Claim.Complete(t.Context(), okResult); err != nil {
			t.Fatal(err)
		}
		later := engineOn(t, s, idempo.Config{DigestKeys: []idempo.Secret{d2}}, leasedOp)
		_, err = later.Begin(t.Context(), request("send", "k", "1"))
		wantCode(t, err, "record_unreadable")
		other := engineOn(t, s, idempo.Config{DigestKeys: []idempo.Secret{d1, d2}}, leasedOp)
		req := request("send", "k", "1")
		req.Recipe, req.DigestFunc = "mine;1", func(recipe string) ([]byte, error) {
			if recipe != "mine;1" {
				return nil, errors.New("unknown recipe")
			}
			return []byte("hash"), nil
		}
		_, err = other.Begin(t.Context(), req)
		wantCode(t, err, "record_unreadable")
	})
}

func TestQuota(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC45] over the quota a new key is refused without a write, a known one is answered", func(t *testing.T) {
		s := newFaulty()
		e := engineOn(t, s, idempo.Config{Quota: idempo.Quota{InFlight: 2}}, leasedOp)
		done, err := e.Begin(t.Context(), request("send", "done", "1"))
		wantVerdict(t, done, err, idempo.VerdictRun)
		if err := done.Claim.Complete(t.Context(), okResult); err != nil {
			t.Fatal(err)
		}
		var held []idempo.Begun
		for _, id := range []string{"a", "b"} {
			b, err := e.Begin(t.Context(), request("send", id, "1"))
			wantVerdict(t, b, err, idempo.VerdictRun)
			held = append(held, b)
		}
		writes := s.count("acquire")
		_, err = e.Begin(t.Context(), request("send", "new", "1"))
		wantCode(t, err, "quota_exceeded")
		if after, ok := idempo.Retryable(err); !ok || after <= 0 || s.count("acquire") != writes {
			t.Error(after, ok, s.calls)
		}
		b, err := e.Begin(t.Context(), request("send", "done", "1"))
		wantVerdict(t, b, err, idempo.VerdictReplay)
		b, err = e.Begin(t.Context(), request("send", "done", "2"))
		wantVerdict(t, b, err, idempo.VerdictMismatch)
		other := request("send", "new", "1")
		other.Key.Tenant = "acct_8"
		b, err = e.Begin(t.Context(), other)
		wantVerdict(t, b, err, idempo.VerdictRun)
		if err := held[0].Claim.Complete(t.Context(), okResult); err != nil {
			t.Fatal(err)
		}
		b, err = e.Begin(t.Context(), request("send", "new", "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
	})
	t.Run("[security/SEC45] the rate of new keys; replays cost nothing", func(t *testing.T) {
		e := newEngine(t, idempo.Config{Quota: idempo.Quota{NewPerSecond: 0.001, Burst: 3}}, atomicOp)
		var l ledger
		var last error
		for i := range 4 {
			_, last = e.Do(t.Context(), request("pay", fmt.Sprint(i), "1"), l.local(okResult, nil))
			for range 5 {
				if i < 3 {
					b, err := e.Do(t.Context(), request("pay", fmt.Sprint(i), "1"), l.local(okResult, nil))
					wantVerdict(t, b, err, idempo.VerdictReplay)
				}
			}
		}
		wantCode(t, last, "quota_exceeded")
		l.want(t, 3)
	})
	t.Run("[security/SEC46] requests of a tenant at once are bounded without a store call", func(t *testing.T) {
		e := newEngine(t, idempo.Config{Quota: idempo.Quota{InFlight: 2}})
		var release []func()
		for range 8 {
			r, err := e.Admit("acct_7")
			if err != nil {
				t.Fatal(err)
			}
			release = append(release, r)
		}
		_, err := e.Admit("acct_7")
		wantCode(t, err, "quota_exceeded")
		if _, err := e.Admit("acct_8"); err != nil {
			t.Error("another tenant:", err)
		}
		release[0]()
		if _, err := e.Admit("acct_7"); err != nil {
			t.Error(err)
		}
	})
	t.Run("[security/SEC48] a million tenants cost bounded memory", func(t *testing.T) {
		e := newEngine(t, idempo.Config{})
		for i := range 300_000 {
			r, err := e.Admit(fmt.Sprint("t", i))
			if err != nil {
				t.Fatal(err)
			}
			r()
		}
		if n := e.QuotaTenants(); n > 100_000 {
			t.Errorf("%d tenants kept", n)
		}
	})
}

func TestPredicates(t *testing.T) {
	t.Parallel()
	x := errors.New("x")
	for _, c := range []struct {
		err       error
		may, more bool
	}{
		{nil, false, false}, {x, true, false}, {idempo.NothingHappened(x), false, false}, {errors.Join(x, idempo.NothingHappened(x)), true, false},
		{&idempo.Error{Code: "mismatch"}, false, false}, {&idempo.Error{Code: "in_progress"}, true, true}, {&idempo.Error{Code: "in_doubt"}, true, false},
		{&idempo.Error{Code: "in_doubt", RetryAfter: 1}, true, true}, {&idempo.Error{Code: "expired"}, true, false}, {&idempo.Error{Code: "lease_lost"}, true, true},
		{&idempo.Error{Code: "unavailable"}, false, true}, {&idempo.Error{Code: "unavailable", Unknown: true}, true, true}, {&idempo.Error{Code: "record_unreadable"}, true, false},
		{&idempo.Error{Code: "invalid"}, false, false}, {&idempo.Error{Code: "misuse"}, false, false}, {&idempo.Error{Code: "nested"}, false, false},
		{&idempo.Error{Code: "not_issued"}, false, false}, {&idempo.Error{Code: "quota_exceeded"}, false, true}, {&idempo.Error{Code: "tx_aborted"}, false, false},
		{fmt.Errorf("wrapped: %w", &idempo.Error{Code: "tx_conflict"}), false, true},
	} {
		if got := idempo.MayHaveHappened(c.err); got != c.may {
			t.Errorf("MayHaveHappened(%v) = %v", c.err, got)
		}
		if _, got := idempo.Retryable(c.err); got != c.more {
			t.Errorf("Retryable(%v) = %v", c.err, got)
		}
	}
	if idempo.NothingHappened(nil) != nil {
		t.Error("NothingHappened(nil) is an error")
	}
	if err := (&idempo.Error{Op: "complete", KeyRef: "k_a", Attempt: 2, Code: "lease_lost", Hint: "idempo keys show k_a", Err: x}); err.Error() !=
		"complete k_a attempt 2: the lease is lost: x; hint: idempo keys show k_a" || !errors.Is(err, idempo.ErrLeaseLost) || !errors.Is(err, x) {
		t.Error(err)
	}
}
