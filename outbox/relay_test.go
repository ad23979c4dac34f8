package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/outbox"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		box, err := outbox.New(s, outbox.Options{Source: "/shop"})
		if err != nil {
			t.Fatal(err)
		}
		pub := &idempotest.Publisher{}
		relay, err := outbox.NewRelay(s, pub, outbox.RelayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan error)
		go func() { end <- relay.Run(ctx) }()
		for i := range 100 {
			if err := box.Do(t.Context(), func(ctx context.Context) error {
				_, err := box.Append(ctx, outbox.Event{Topic: "orders", Key: fmt.Sprint("k", i%7), Type: "Paid", Payload: fmt.Append(nil, i)})
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := pub.Wait(t.Context(), func() bool { return len(pub.Done()) == 100 }); err != nil {
			t.Fatal(err)
		}
		t.Log(relay.Status())
		cancel()
		_, desk := s.Outbox()
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		st, err := desk.Status(t.Context(), outbox.StatusParams{})
		t.Logf("%+v %v", st, err)
	})
}
