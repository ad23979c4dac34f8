package idempo_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

func settling(t *testing.T, probe func(context.Context, idempo.Record) (idempo.State, idempo.Result, error), c idempo.Config) *idempo.Engine {
	t.Helper()
	op := idempo.Operation{Name: "pay", Guard: idempo.GuardLeased, Retention: 2 * time.Hour, Tombstone: idempo.Forever, MaxResult: 8}
	if probe != nil {
		op.OnCrash, op.ProbeFunc = idempo.OnCrashProbe, probe
	}
	c.DigestKeys = []idempo.Secret{{ID: "d2", Value: []byte("2123456789abcdef0123456789abcdef")}, {ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}
	c.Operations = []idempo.Operation{op}
	e, err := idempo.New(memstore.New(memstore.Options{}), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestSettlement(t *testing.T) {
	t.Parallel()
	rec := idempo.Record{Key: idempo.Key{Tenant: "a", Operation: "pay", ID: "0123456789abcdef0123456789abcdef"}, Attempt: 3, State: idempo.StateInDoubt}
	t.Run("[operations/OP21] a settled result is kept as the operation declares, too big ones as a digest", func(t *testing.T) {
		e := settling(t, nil, idempo.Config{})
		p, err := e.Settlement(rec, idempo.Result{Status: 201, Body: []byte("12345678")})
		if err != nil || p.Retention != 2*time.Hour || p.Tombstone != idempo.Forever || !p.Kept || p.Size != 8 || p.Attempt != 3 || p.Key != rec.Key {
			t.Errorf("%+v %v", p, err)
		}
		if p, err = e.Settlement(rec, idempo.Result{Body: []byte("123456789")}); err != nil || p.Kept || p.Size != 9 || len(p.SHA256) != 32 || p.Result.Body != nil {
			t.Errorf("%+v %v", p, err)
		}
		other := rec
		other.Key.Operation = "undeclared"
		if p, err = e.Settlement(other, idempo.Result{}); err != nil || p.Retention != 24*time.Hour || p.Tombstone != 240*time.Hour {
			t.Errorf("%+v %v", p, err)
		}
	})
	t.Run("[security/SEC22] it is encrypted where results are, and opens for its own row only", func(t *testing.T) {
		e := settling(t, nil, idempo.Config{EncryptionKeys: []idempo.Secret{{ID: "e1", Value: []byte("e123456789abcdef0123456789abcdef")}}})
		p, err := e.Settlement(rec, idempo.Result{Status: 200, Body: []byte("secret"), Header: [][2]string{{"A", "b"}}})
		if err != nil || p.Sealed != "e1" || bytes.Contains(p.Result.Body, []byte("secret")) {
			t.Fatalf("%+v %v", p, err)
		}
		done := rec
		done.State, done.Result, done.Sealed = idempo.StateCompleted, p.Result, p.Sealed
		if r, err := e.Open(done); err != nil || string(r.Result.Body) != "secret" || r.Result.Header[0] != [2]string{"A", "b"} {
			t.Errorf("%+v %v", r, err)
		}
		done.Key.ID = "another row of 32 bytes is no row"
		if _, err := e.Open(done); err == nil {
			t.Error("a moved row opens")
		}
	})
	t.Run("[operations/OP21] the probe is asked with the record, and its panic is an error", func(t *testing.T) {
		var asked idempo.Record
		e := settling(t, func(_ context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
			asked = r
			return idempo.StateCompleted, idempo.Result{Status: 201}, nil
		}, idempo.Config{})
		state, res, err := e.Probe(t.Context(), rec)
		if err != nil || state != idempo.StateCompleted || res.Status != 201 || asked.Attempt != 3 {
			t.Error(state, res, err, asked)
		}
		other := rec
		other.Key.Operation = "undeclared"
		_, _, undeclared := e.Probe(t.Context(), other)
		_, _, without := settling(t, nil, idempo.Config{}).Probe(t.Context(), rec)
		_, _, panics := settling(t, func(context.Context, idempo.Record) (idempo.State, idempo.Result, error) { panic("x") }, idempo.Config{}).Probe(t.Context(), rec)
		_, _, fails := settling(t, func(context.Context, idempo.Record) (idempo.State, idempo.Result, error) {
			return "", idempo.Result{}, errors.New("down")
		}, idempo.Config{}).Probe(t.Context(), rec)
		for _, err := range []error{undeclared, without, panics, fails} {
			if err == nil {
				t.Error("no error")
			}
		}
	})
	t.Run("[stores/E23] a key as stores have it, under each digest key, the newest first", func(t *testing.T) {
		e := settling(t, nil, idempo.Config{})
		key := idempo.Key{Tenant: "a", Operation: "pay", ID: "order-81"}
		got := e.Stored(key, "")
		if len(got) != 2 || got[0].Ref() != e.Ref(key, "") || got[1].Ref() == got[0].Ref() || got[0].Tenant != "a" || got[1].Operation != "pay" {
			t.Errorf("%v", got)
		}
		if e.Stored(idempo.Key{Operation: "pay"}, "") != nil || e.Stored(idempo.Key{Tenant: "a", Operation: "undeclared", ID: "x"}, "") != nil {
			t.Error("a key that is not legal, or of nobody")
		}
	})
}
