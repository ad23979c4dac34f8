package operator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP47] agree, missing outside, extra outside, differs, unknown; nothing is written", func(t *testing.T) {
		b := newBed(t)
		outside := map[string]operator.Compared{}
		want := map[string]operator.Kind{}
		say := func(ref string, state idempo.State, res idempo.Result, kind operator.Kind) {
			outside[ref], want[ref] = operator.Compared{State: state, Result: res}, kind
		}
		yes, other := idempo.Result{Status: 201}, idempo.Result{Resource: idempo.Resource{Type: "charge", ID: "ch_2"}}
		failed := func(id string) string {
			ref := b.doubt("a", id)
			_, err := b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), ref), To: idempo.StateFailed})
			b.code(err, "")
			return ref
		}
		say(b.done("a", "1", false), idempo.StateCompleted, yes, operator.KindAgree)
		say(b.done("a", "2", false), idempo.StateFailed, idempo.Result{}, operator.KindMissing)
		say(b.done("a", "3", true), idempo.StateFailed, idempo.Result{}, operator.KindAgree)
		say(b.done("a", "4", true), idempo.StateCompleted, yes, operator.KindExtra)
		say(failed("5"), idempo.StateFailed, idempo.Result{}, operator.KindAgree)
		say(failed("6"), idempo.StateCompleted, yes, operator.KindExtra)
		say(b.doubt("a", "7"), idempo.StateCompleted, yes, operator.KindExtra)
		say(b.doubt("a", "8"), idempo.StateFailed, idempo.Result{}, operator.KindMissing)
		say(b.doubt("a", "9"), "", idempo.Result{}, operator.KindUnknown)
		paid := b.doubt("a", "10")
		_, err := b.ops.Resolve(t.Context(), operator.ResolveParams{Why: b.why(ann(), paid), To: idempo.StateCompleted,
			Result: idempo.Result{Status: 201, Resource: idempo.Resource{Type: "charge", ID: "ch_1"}}})
		b.code(err, "")
		say(paid, idempo.StateCompleted, other, operator.KindDiffers)
		b.claim("a", "running")
		b.done("b", "of another tenant", false)
		rows := len(b.audit())
		got := map[string]operator.Kind{}
		p := operator.ReconcileParams{By: ann("a"), Operation: "pay",
			AskFunc: func(_ context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
				o := outside[r.Ref()]
				if o.State == "" {
					return "", idempo.Result{}, errors.New("the bank is closed")
				}
				return o.State, o.Result, nil
			},
			ReportFunc: func(c operator.Compared) error {
				got[c.Record.Ref()] = c.Kind
				if (c.Kind == operator.KindUnknown) != (c.Why == "the bank is closed") {
					t.Errorf("%s: why %q", c.Kind, c.Why)
				}
				return nil
			}}
		counts, err := b.ops.Reconcile(t.Context(), p)
		b.code(err, "")
		if !maps.Equal(got, want) {
			t.Errorf("%v\nwant\n%v", got, want)
		}
		if s := fmt.Sprint(counts); s != "map[agree:3 differs:1 extra_outside:3 missing_outside:2 unknown:1]" || len(b.audit()) != rows {
			t.Errorf("%s, %d more audit rows", s, len(b.audit())-rows)
		}
		p.Since = b.now.Add(time.Second)
		if counts, err = b.ops.Reconcile(t.Context(), p); err != nil || len(counts) != 0 {
			t.Errorf("later: %v %v", counts, err)
		}
		p.Since, p.Until = time.Time{}, b.now
		if counts, err = b.ops.Reconcile(t.Context(), p); err != nil || len(counts) != 0 {
			t.Errorf("earlier: %v %v", counts, err)
		}
		p.AskFunc = nil
		_, err = b.ops.Reconcile(t.Context(), p)
		b.code(err, operator.CodeUnsupported)
		p.Operation = ""
		_, err = b.ops.Reconcile(t.Context(), p)
		b.code(err, operator.CodeInvalid)
	})
}
