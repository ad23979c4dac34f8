package inbox_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo/inbox"
)

func TestShare(t *testing.T) {
	t.Parallel()
	t.Run("a share leaves alone: what runs of it ends, what waits is not begun, the feed goes on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{Workers: 2, MaxInFlight: 10})
			ctx, stop := context.WithCancel(t.Context())
			f := d.Feed(ctx, func(ctx context.Context, m inbox.Message) error {
				time.Sleep(time.Second)
				d.effect(ctx, m)
				return nil
			})
			var b broker
			leaving := f.NewShare()
			for i := range 4 {
				m := message(fmt.Sprint("leaves", i))
				m.Lane = "one"
				leaving.Add(b.delivery(m))
			}
			synctest.Wait()
			leaving.Close()
			leaving.Add(b.delivery(message("too late")))
			f.Add(b.delivery(message("stays")))
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := b.list(); !slices.Equal(got, []string{"leaves0", "stays"}) || f.InFlight() != 0 {
				t.Errorf("acknowledged %q, %d in flight", got, f.InFlight())
			}
			stop()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("one that does not end in time rolls back, and only those of its share", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{Workers: 2, DrainTimeout: 5 * time.Second})
			ctx, stop := context.WithCancel(t.Context())
			f := d.Feed(ctx, func(ctx context.Context, m inbox.Message) error {
				d.effect(ctx, m)
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Minute):
					return nil
				}
			})
			var b broker
			leaving, staying := f.NewShare(), f.NewShare()
			leaving.Add(b.delivery(message("leaves")))
			staying.Add(b.delivery(message("stays")))
			synctest.Wait()
			leaving.Close()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if got := b.list(); !slices.Equal(got, []string{"stays"}) {
				t.Errorf("acknowledged %q", got)
			}
			d.ledger.Want(t, "leaves", 0)
			d.ledger.Want(t, "stays", 1)
			stop()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			staying.Close()
		})
	})
	t.Run("room for a batch is waited for, and never more than there is", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{Workers: 8, MaxInFlight: 4})
			ctx, stop := context.WithCancel(t.Context())
			open := make(chan struct{}, 4)
			f := d.Feed(ctx, func(context.Context, inbox.Message) error { <-open; return nil })
			var b broker
			if n, err := f.RoomFor(100); n != 4 || err != nil {
				t.Error(n, err)
			}
			for i := range 4 {
				f.Add(b.delivery(message(fmt.Sprint(i))))
			}
			room := make(chan int, 1)
			go func() { n, _ := f.RoomFor(3); room <- n }()
			for range 2 {
				open <- struct{}{}
			}
			synctest.Wait()
			if len(room) != 0 {
				t.Error("room for three where two are free")
			}
			open <- struct{}{}
			if n := <-room; n != 3 {
				t.Error(n)
			}
			open <- struct{}{}
			stop()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestLag(t *testing.T) {
	t.Parallel()
	d := newDesk(t, inbox.Options{})
	d.SetLag("orders/0", 7)
	d.SetLag("orders/1", 9)
	d.SetLag("orders/0", 5)
	d.SetLag("orders/1", -1)
	got := d.Lag()
	if !maps.Equal(got, map[string]int64{"orders/0": 5}) {
		t.Error(got)
	}
	got["orders/0"] = 1
	if d.Lag()["orders/0"] != 5 {
		t.Error("the map is shared")
	}
}

func TestMark(t *testing.T) {
	t.Parallel()
	d := newDesk(t, inbox.Options{})
	move := func(partition string, to, want int64) {
		t.Helper()
		if was, err := d.Mark(t.Context(), partition, to); was != want || err != nil {
			t.Errorf("the mark was %d, %v; want %d", was, err, want)
		}
	}
	move("g/orders/0", 100, 0)
	move("g/orders/0", 50, 100) // an old owner changes nothing
	move("g/orders/0", 101, 100)
	move("g/orders/1", 7, 0)
	move("g/orders/0", 0, 101)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if _, err := d.Mark(t.Context(), "g/orders/2", int64(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	move("g/orders/2", 0, 49)
	if rs, err := d.Find(t.Context(), inbox.Selection{}); err != nil || len(rs) != 0 {
		t.Error(rs, err)
	}
}
