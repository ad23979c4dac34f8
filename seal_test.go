package idempo_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// tampered is a store whose records are changed between the disk and the engine.
type tampered struct {
	*memstore.Store
	change func(*idempo.Record)
}

func (s *tampered) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	r, err := s.Store.Lookup(ctx, p)
	if s.change != nil && r.State != "" {
		s.change(&r)
	}
	return r, err
}

func TestEncryption(t *testing.T) {
	t.Parallel()
	e1, e2 := idempo.Secret{ID: "e1", Value: []byte("0123456789abcdef0123456789abcdef")}, idempo.Secret{ID: "e2", Value: []byte("fedcba9876543210fedcba9876543210")}
	secret := idempo.Result{Status: 201, Header: [][2]string{{"X-Answer", "canary-header"}, {"X-Raw", "\xff\x00"}}, Body: []byte("canary-body"), Resource: idempo.Resource{Type: "p", ID: "1"}}
	complete := func(t *testing.T, e *idempo.Engine, id string) {
		t.Helper()
		req := request("send", id, "1")
		req.Snapshot = []byte("canary-snapshot")
		b, err := e.Do(t.Context(), req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return secret, nil })
		wantVerdict(t, b, err, idempo.VerdictRun)
	}
	t.Run("[security/SEC35] nothing in clear in the store, replays equal, older records in clear still replay", func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		complete(t, engineOn(t, s, idempo.Config{}, leasedOp), "clear")
		e := engineOn(t, s, idempo.Config{EncryptionKeys: []idempo.Secret{e1}}, leasedOp)
		complete(t, e, "sealed")
		rotated := engineOn(t, s, idempo.Config{EncryptionKeys: []idempo.Secret{e2, e1}}, leasedOp)
		complete(t, rotated, "newer")
		for _, id := range []string{"clear", "sealed", "newer"} {
			b, err := rotated.Begin(t.Context(), request("send", id, "1"))
			wantVerdict(t, b, err, idempo.VerdictReplay)
			if !b.Record.Result.Equal(secret) {
				t.Errorf("%s: %+v", id, b.Record.Result)
			}
		}
		sealed := map[string]int{}
		for r := range s.All() {
			sealed[r.Sealed]++
			var all strings.Builder
			all.WriteString(string(r.Result.Body) + string(r.Snapshot))
			for _, h := range r.Result.Header {
				all.WriteString(h[0] + h[1])
			}
			if r.Sealed != "" && strings.Contains(all.String(), "canary") {
				t.Error("plaintext in the store")
			}
		}
		if sealed[""] != 1 || sealed["e1"] != 1 || sealed["e2"] != 1 {
			t.Error(sealed)
		}
	})
	t.Run("[security/SEC36] a changed, moved, cut or foreign ciphertext opens nowhere; the state stays completed", func(t *testing.T) {
		s := &tampered{Store: memstore.New(memstore.Options{})}
		e := engineOn(t, s, idempo.Config{EncryptionKeys: []idempo.Secret{e1}}, leasedOp)
		complete(t, e, "a")
		complete(t, e, "b")
		lookup := func() (idempo.Record, error) {
			return e.Lookup(t.Context(), idempo.Key{Tenant: "acct_7", Operation: "send", ID: "a"})
		}
		good, err := lookup()
		if err != nil || !good.Result.Equal(secret) {
			t.Fatal(err)
		}
		s.change = func(r *idempo.Record) { good = r.Clone() }
		_, _ = lookup()
		var other idempo.Record
		for r := range s.All() {
			if r.Key != good.Key {
				other = r
			}
		}
		for name, change := range map[string]func(*idempo.Record){
			"a bit":                   func(r *idempo.Record) { r.Result.Body[len(r.Result.Body)-1] ^= 1 },
			"salt":                    func(r *idempo.Record) { r.Result.Body[0] ^= 1 },
			"cut":                     func(r *idempo.Record) { r.Result.Body = r.Result.Body[:20] },
			"empty":                   func(r *idempo.Record) { r.Result.Body = []byte{} },
			"other row":               func(r *idempo.Record) { r.Result.Body = bytes.Clone(other.Result.Body) },
			"other field":             func(r *idempo.Record) { r.Result.Body = []byte(r.Result.Header[0][1]) },
			"other attempt":           func(r *idempo.Record) { r.Attempt++ },
			"other tenant":            func(r *idempo.Record) { r.Key.Tenant = "acct_8" },
			"header":                  func(r *idempo.Record) { r.Result.Header[0][1] = "x" },
			"[security/SEC37] key id": func(r *idempo.Record) { r.Sealed = "e9" },
		} {
			s.change = change
			_, err := lookup()
			e, ok := errors.AsType[*idempo.Error](err)
			if !ok || e.Code != "result_unreadable" || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.change = nil
		if r, err := lookup(); err != nil || r.State != idempo.StateCompleted {
			t.Error(r.State, err)
		}
		b, err := e.Begin(t.Context(), request("send", "a", "1"))
		wantVerdict(t, b, err, idempo.VerdictReplay)
	})
	t.Run("[security/SEC37] a tenant's key is gone: unreadable, and the fact that it happened stays", func(t *testing.T) {
		gone := false
		e := newEngine(t, idempo.Config{EncryptionKeyFunc: func(tenant string) ([]idempo.Secret, error) {
			if gone {
				return []idempo.Secret{e2}, nil
			}
			return []idempo.Secret{e1}, nil
		}}, leasedOp)
		complete(t, e, "a")
		gone = true
		_, err := e.Do(t.Context(), request("send", "a", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
			t.Error("ran again")
			return okResult, nil
		})
		wantCode(t, err, "result_unreadable")
	})
	t.Run("[security/SEC38] no salt and nonce twice", func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		e := engineOn(t, s, idempo.Config{EncryptionKeys: []idempo.Secret{e1}}, leasedOp)
		for i := range 2000 {
			complete(t, e, strings.Repeat("k", i+1))
		}
		seen := map[string]bool{}
		for r := range s.All() {
			for _, box := range [][]byte{r.Result.Body, []byte(r.Result.Header[0][1])} {
				if seen[string(box[:28])] {
					t.Fatal("a salt and nonce pair stands twice")
				}
				seen[string(box[:28])] = true
			}
		}
		if len(seen) != 4000 {
			t.Error("void:", len(seen))
		}
	})
	t.Run("[security/SEC30] weak keys are refused by id, their values never named", func(t *testing.T) {
		for _, c := range []idempo.Config{
			{}, {DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("canary-short")}}},
			{DigestKeys: []idempo.Secret{{ID: "d1", Value: bytes.Repeat([]byte("x"), 40)}}},
			{DigestKeys: append(digestKeys(), digestKeys()...)},
			{DigestKeys: digestKeys(), EncryptionKeys: []idempo.Secret{{ID: "e1", Value: []byte("canary-of-thirty-three-bytes-long")}}},
			{DigestKeys: []idempo.Secret{{ID: "bad id", Value: digestKeys()[0].Value}}},
		} {
			if _, err := idempo.New(memstore.New(memstore.Options{}), c); err == nil || strings.Contains(err.Error(), "canary") {
				t.Error(err)
			}
		}
	})
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		take := func() []idempo.Record {
			r, err := s.Take(t.Context(), idempo.TakeParams{Operations: []string{"send"}, Limit: 9, Token: idempo.Token{1}, Lease: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ctx, tx, _ := s.Begin(t.Context())
		if _, err := e.Enqueue(ctx, request("send", "rolled back", "1"), time.Time{}); err != nil {
			t.Fatal("[stores/E22] in a transaction:", err)
		}
		tx.Rollback()
		if _, err := e.Enqueue(t.Context(), request("send", "k", "1"), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if n := len(take()); n != 0 {
			t.Fatalf("[stores/E22] %d taken before they were due", n)
		}
		time.Sleep(time.Hour)
		got := take()
		if len(got) != 1 || got[0].Attempt != 1 || len(take()) != 0 {
			t.Fatalf("[stores/E22] took %+v", got)
		}
	})
}
