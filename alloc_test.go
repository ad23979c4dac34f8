package idempo_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/idempo/idempo"
)

// Not parallel: it counts allocations.
func TestAllocations(t *testing.T) {
	e := newEngine(t, idempo.Config{}, atomicOp, leasedOp)
	work := func(context.Context, *idempo.Claim) (idempo.Result, error) { return okResult, nil }
	for _, op := range []string{"pay", "send"} {
		n := 0
		ids := make([]string, 4000)
		for i := range ids {
			ids[i] = strconv.Itoa(i)
		}
		input := [][]byte{[]byte(`{"amount":12}`)}
		do := func(id string) {
			if _, err := e.Do(t.Context(), idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: op, ID: id}, Input: input}, work); err != nil {
				t.Fatal(err)
			}
		}
		first := testing.AllocsPerRun(1000, func() { do(ids[n]); n++ })
		replay := testing.AllocsPerRun(1000, func() { do(ids[0]) })
		if raceEnabled {
			continue // the detector allocates too
		}
		if first > 20 || replay > 10 {
			t.Errorf("[stores/E40] %s: %.0f allocations a first call, want at most 20; %.0f a replay, want at most 10", op, first, replay)
		}
		t.Logf("%s: %.0f allocations a first call, %.0f a replay", op, first, replay)
	}
}
