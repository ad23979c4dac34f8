package cli

import (
	"context"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/operator"
)

// counters looks at what processes have counted in 30 days: clients that make a key for each attempt, and calls that came when
// the answer was gone.
func (d *doctor) counters(ctx context.Context, store *database.Store) {
	if _, ok := store.Store.(operator.CounterKeeper); !ok {
		return
	}
	all := operator.Windows()
	got, err := operator.NewMeter(operator.MeterConfig{Store: store.Store}).Measure(ctx, all[len(all)-1])
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		d.warn("counters", "idempo migrate up", "what processes have counted cannot be read: %v", err)
		return
	case got.Total.All() == 0:
		d.ok("counters", "no process has written any yet")
		return
	}
	found := false
	for _, o := range got.Operations {
		if o.FreshKey > 0 {
			found = true
			d.warn("keys", "send the same key with every attempt of one intent", "%s: a client makes a key per attempt: %d times a request ran under a third new key or more, within ten minutes", o.Name, o.FreshKey)
		}
		if o.Expired > 0 {
			found = true
			d.warn("retention", "raise the retention of "+o.Name+"; the dashboard says how far", "%s: %d calls came when the answer was gone, of 1,000 duplicates 999 within %s", o.Name, o.Expired,
				o.Ages.Quantile(0.999).Round(time.Second))
		}
	}
	if !found {
		d.ok("counters", "%d calls in 30 days: no client makes a key per attempt, and none came when its answer was gone", got.Total.All())
	}
}
