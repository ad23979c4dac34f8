package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

func TestDoubtIsNoStart(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W33] what is in doubt stays in doubt, however often Work looks at it, until a person settles it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("32 bytes that are no secret at all")}}})
			if err != nil {
				t.Fatal(err)
			}
			in, err := inbox.New(engine, inbox.Options{Subscriber: "s", Guard: idempo.GuardLeased, MaxAttempts: 1, BackoffBase: 1, BackoffMax: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			cut := func(context.Context, inbox.Message) error { calls++; return errors.New("no answer") }
			if _, err := in.Put(t.Context(), inbox.Message{Source: "q", ID: "1", Body: []byte("b")}); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if _, err := in.Once(t.Context(), cut); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // the bubble's clock
			}
			rs, err := in.Find(t.Context(), inbox.Selection{Statuses: []inbox.Status{inbox.StatusInDoubt, inbox.StatusDead}})
			if err != nil || len(rs) != 1 || rs[0].Status != inbox.StatusInDoubt || rs[0].Attempts != 1 || len(rs[0].Failures) != 1 || calls != 1 {
				t.Errorf("%+v %v, %d calls", rs, err, calls)
			}
		})
	})
}
