package operator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// holding is a store that says who holds a key.
type holding struct {
	idempo.Store
	held map[idempo.Key]operator.Held
}

func (h holding) List(context.Context, operator.FindParams) (operator.Page, error) {
	return operator.Page{}, nil
}

func (h holding) Holder(_ context.Context, key idempo.Key) (operator.Held, error) {
	return h.held[key], nil
}

type listens func(idempo.Event)

func (l listens) Observe(_ context.Context, e idempo.Event) { l(e) }

func TestResolveByProbe(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP21] the probe's answer is applied; one that cannot tell changes nothing", func(t *testing.T) {
		for name, c := range map[string]struct {
			state idempo.State
			err   error
			want  idempo.State
			code  string
		}{
			"happened":     {idempo.StateCompleted, nil, idempo.StateCompleted, ""},
			"did not":      {idempo.StateFailed, nil, idempo.StateFailed, ""},
			"cannot tell":  {idempo.StateInDoubt, nil, idempo.StateInDoubt, operator.CodeWrongState},
			"is not there": {"", errors.New("connection refused"), idempo.StateInDoubt, operator.CodeWrongState},
		} {
			b := newBed(t)
			var told []idempo.Event
			e, err := idempo.New(b.store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
				Observer: listens(func(e idempo.Event) {
					if e.Kind == "resolve" {
						told = append(told, e)
					}
				}),
				Operations: []idempo.Operation{{Name: "pay", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe,
					ProbeFunc: func(context.Context, idempo.Record) (idempo.State, idempo.Result, error) {
						return c.state, idempo.Result{Status: 201, Body: []byte("found")}, c.err
					}}}})
			if err != nil {
				t.Fatal(err)
			}
			if b.ops, err = operator.New(b.store, operator.Config{Engine: e}); err != nil {
				t.Fatal(err)
			}
			ref := b.doubt("a", "1")
			got, err := b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), ref), Probe: true})
			b.code(err, c.code)
			if b.state(ref) != c.want || c.code == "" && got.Record.State != c.want {
				t.Errorf("%s: %s, %+v", name, b.state(ref), got)
			}
			if settled := c.code == ""; settled != (len(told) == 1) || settled && (told[0].Class != "operator" || told[0].Outcome != string(c.want) || told[0].Operation != "pay" || told[0].KeyRef != ref) {
				t.Errorf("%s: the observer was told %+v", name, told)
			}
			if n := len(b.audit()); n != 1 {
				t.Errorf("%s: %d audit rows", name, n)
			}
			if c.want != idempo.StateCompleted {
				continue
			}
			r, err := b.ops.Reveal(t.Context(), operator.RevealParams{Why: b.why(ann(), ref)})
			if err != nil || string(r.Result.Body) != "found" || len(b.audit()) != 2 {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
	})
}

func TestShowRunning(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP48] a key without a row that somebody holds is running, for those who may see its tenant", func(t *testing.T) {
		stored := idempo.Key{Tenant: "a", Operation: "pay", ID: "0123456789abcdef0123456789abcdef"}
		held := operator.Held{Session: "4711", Application: "shop", Since: now()}
		ops, err := operator.New(holding{held: map[idempo.Key]operator.Held{stored: held}}, operator.Config{
			StoredFunc: func(k idempo.Key, _ string) []idempo.Key {
				first := stored
				first.ID = "under another digest key, 32 byte"[:32]
				return []idempo.Key{first, {Tenant: k.Tenant, Operation: k.Operation, ID: stored.ID}}
			}})
		if err != nil {
			t.Fatal(err)
		}
		show := func(tenant string, by operator.Principal) (operator.Shown, error) {
			return ops.Show(t.Context(), operator.ShowParams{By: by, Target: operator.Target{Key: idempo.Key{Tenant: tenant, Operation: "pay", ID: "order-81"}}})
		}
		s, err := show("a", ann())
		if err != nil || s.Held != held || s.Record.Key != stored || s.Record.State != idempo.StatePending || s.Record.Guard != idempo.GuardAtomic {
			t.Errorf("%+v %v", s, err)
		}
		for _, by := range []operator.Principal{ann("b"), {}} {
			if _, err := show("a", by); operator.CodeOf(err) != operator.CodeNotFound {
				t.Errorf("%+v: %v", by, err)
			}
		}
		if _, err := show("b", ann()); operator.CodeOf(err) != operator.CodeNotFound {
			t.Error(err)
		}
	})
}
