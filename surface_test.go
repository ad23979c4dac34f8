package idempo_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/idempo/idempo"
)

// What surfaces need of the engine besides Begin and Complete.
func TestForSurfaces(t *testing.T) {
	t.Parallel()
	t.Run("an omitted body never reaches the store; size and digest do", func(t *testing.T) {
		for _, op := range []string{"pay", "send"} {
			e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}, leasedOp)
			sum := [32]byte{7}
			res := idempo.Result{Status: 201, Body: []byte("secret"), Header: [][2]string{{"A", "1"}}}
			_, err := e.Do(t.Context(), request(op, "k", "1"), func(_ context.Context, c *idempo.Claim) (idempo.Result, error) {
				c.Omit(99, sum)
				return res, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			b, err := e.Do(t.Context(), request(op, "k", "1"), nil)
			wantVerdict(t, b, err, idempo.VerdictReplay)
			r := b.Record
			if r.BodyKept || r.Result.Body != nil || r.BodySize != 99 || !bytes.Equal(r.BodySHA256, sum[:]) ||
				r.Result.Status != 201 || !slices.Equal(r.Result.Header, res.Header) {
				t.Errorf("%s: record %+v", op, r)
			}
		}
	})
	t.Run("Check says what Declare would, and declares nothing", func(t *testing.T) {
		e := newEngine(t, idempo.Config{})
		good, bad := idempo.Operation{Name: "good", Guard: idempo.GuardLeased}, idempo.Operation{Name: "bad"}
		if err := e.Check(good); err != nil || len(e.Operations()) != 0 {
			t.Error(err, e.Operations())
		}
		if err := e.Check(bad); err == nil || err.Error() != e.Declare(bad).Error() {
			t.Error(err)
		}
	})
	t.Run("Report reaches the observer, and its panic nobody", func(t *testing.T) {
		var seen []idempo.Event
		e := newEngine(t, idempo.Config{Observer: watch(func(ev idempo.Event) { seen = append(seen, ev); panic("observer") })})
		e.Report(t.Context(), idempo.Event{Kind: "passthrough", Class: "declared"})
		if len(seen) != 1 || seen[0].Class != "declared" {
			t.Errorf("%v", seen)
		}
	})
}

type watch func(idempo.Event)

func (w watch) Observe(_ context.Context, ev idempo.Event) { w(ev) }
