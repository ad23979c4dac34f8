package storetest

import (
	"strings"
	"testing"

	"github.com/idempo/idempo"
)

func TestTransitions(t *testing.T) {
	t.Parallel()
	base := Transition{Key: "k", FromAttempt: 1, ToAttempt: 1, FromGeneration: 1, ToGeneration: 1, FromToken: "a", ToToken: "a"}
	with := func(from, to idempo.State, change func(c *Transition)) Transition {
		c := base
		c.From, c.To = from, to
		if change != nil {
			change(&c)
		}
		return c
	}
	taken := func(c *Transition) { c.ToAttempt, c.ToToken = 2, "b" }
	check := func(all ...Transition) string {
		r := &recorder{TB: t}
		CheckTransitions(r, all)
		return strings.Join(r.bad, "; ")
	}
	for name, c := range map[string]Transition{
		"a claim":               with("", idempo.StatePending, nil),
		"a renewal":             with(idempo.StatePending, idempo.StatePending, nil),
		"a take-over":           with(idempo.StatePending, idempo.StatePending, taken),
		"a result":              with(idempo.StatePending, idempo.StateCompleted, nil),
		"late truth":            with(idempo.StateInDoubt, idempo.StateCompleted, nil),
		"an atomic one":         with(idempo.StateFailed, idempo.StateCompleted, taken),
		"a tombstone":           with(idempo.StateCompleted, idempo.StateExpired, nil),
		"a forced run":          with(idempo.StateCompleted, idempo.StateFailed, func(c *Transition) { c.ToGeneration = 2 }),
		"a key that was over":   with(idempo.StateExpired, idempo.StatePending, func(c *Transition) { taken(c); c.Over = true }),
		"an operator's result":  with(idempo.StateInDoubt, idempo.StateCompleted, func(c *Transition) { c.ToToken = "" }),
		"removed by the sweep":  with(idempo.StateExpired, "", nil),
		"forgotten, and issued": with(idempo.StatePending, idempo.StateIssued, nil),
	} {
		t.Run("[stores/CT47] a step of the table: "+name, func(t *testing.T) {
			if bad := check(c); bad != "" {
				t.Error(bad)
			}
		})
	}
	for name, c := range map[string]Transition{
		"a finished key runs again":   with(idempo.StateCompleted, idempo.StatePending, taken),
		"a tombstone runs again":      with(idempo.StateExpired, idempo.StatePending, taken),
		"a failure becomes a doubt":   with(idempo.StateFailed, idempo.StateInDoubt, nil),
		"a live lease is taken":       with(idempo.StatePending, idempo.StatePending, func(c *Transition) { taken(c); c.FromLeaseAlive = true }),
		"no fence on completion":      with(idempo.StatePending, idempo.StateCompleted, func(c *Transition) { c.ToToken = "b" }),
		"renewed by another":          with(idempo.StatePending, idempo.StatePending, func(c *Transition) { c.ToToken = "b" }),
		"an attempt shrinks":          with(idempo.StatePending, idempo.StatePending, func(c *Transition) { c.ToAttempt = 0 }),
		"an attempt is skipped":       with(idempo.StateFailed, idempo.StatePending, func(c *Transition) { c.ToAttempt = 3 }),
		"a take-over without attempt": with(idempo.StateFailed, idempo.StatePending, nil),
		"a body in a tombstone":       with(idempo.StateCompleted, idempo.StateExpired, func(c *Transition) { c.Payload = true }),
		"a generation by itself":      with(idempo.StatePending, idempo.StateCompleted, func(c *Transition) { c.ToGeneration = 2 }),
	} {
		t.Run("[stores/CT47] found: "+name, func(t *testing.T) {
			if check(c) == "" {
				t.Error("nothing is wrong with it")
			}
		})
	}
	t.Run("[stores/CT47] found: one token completes twice; and a run in which nothing changed is void", func(t *testing.T) {
		done := with(idempo.StatePending, idempo.StateCompleted, nil)
		if bad := check(done, done); !strings.Contains(bad, "completed twice") {
			t.Error(bad)
		}
		if bad := check(); !strings.Contains(bad, "void") {
			t.Error(bad)
		}
	})
}
