package storetest

import (
	"fmt"
	"testing"

	"github.com/idempo/idempo"
)

// Transition is one change of a row of records, as a trigger of the test's own saw it. An empty state is no row.
type Transition struct {
	Key                          string // of the row, in any form
	From, To                     idempo.State
	FromAttempt, ToAttempt       int64
	FromGeneration, ToGeneration int64
	FromToken, ToToken           string
	Payload                      bool // afterwards there is a body, a header, a snapshot, a detail, a note or a trace
	Over                         bool // what was there had expired, or its tombstone was over, at the time of the change
	FromLeaseAlive               bool // of a pending row, at the time of the change
}

// CheckTransitions wants every change to be a step of the transition table, attempts to grow, and each token to complete
// once. A run without a change is void.
func CheckTransitions(t testing.TB, all []Transition) {
	t.Helper()
	if len(all) == 0 {
		t.Error("void run: no change was logged")
	}
	completions := map[string]int{}
	for _, c := range all {
		for _, wrong := range c.wrong() {
			t.Errorf("record %s, %q to %q, attempt %d to %d: %s", c.Key, c.From, c.To, c.FromAttempt, c.ToAttempt, wrong)
		}
		if c.To == idempo.StateCompleted && c.From != c.To && c.ToToken != "" {
			if completions[c.Key+c.ToToken]++; completions[c.Key+c.ToToken] == 2 {
				t.Errorf("record %s: completed twice by one token", c.Key)
			}
		}
	}
}

// steps are those of the table between stored states, each with what becomes of the attempt: as it is, one more, or
// either. A row that is over may become anything that an absent one may.
func steps() map[[2]idempo.State]string {
	const same, next, either = "same", "next", "either"
	none, issued, pending, doubt := idempo.State(""), idempo.StateIssued, idempo.StatePending, idempo.StateInDoubt
	failed, completed, expired := idempo.StateFailed, idempo.StateCompleted, idempo.StateExpired
	return map[[2]idempo.State]string{
		{none, issued}: either, {none, pending}: either, {none, completed}: either, {none, failed}: either,
		{issued, pending}: either, {issued, completed}: next, {issued, none}: either,
		// renewed or taken over · own result, or an atomic one over what never started · given back, doubted, forgotten
		{pending, pending}: either, {pending, completed}: either, {pending, failed}: same, {pending, doubt}: same, {pending, issued}: same, {pending, none}: either,
		{doubt, pending}: next, {doubt, completed}: either, {doubt, failed}: same, {doubt, doubt}: same, {doubt, none}: either,
		{failed, pending}: next, {failed, completed}: next, {failed, failed}: same, {failed, none}: either,
		{completed, completed}: same, {completed, expired}: same, {completed, failed}: same, {completed, none}: either,
		{expired, failed}: same, {expired, expired}: same, {expired, none}: either,
	}
}

// wrong names what is wrong with one change.
func (c Transition) wrong() (wrong []string) {
	rule := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	if c.To == idempo.StateExpired {
		rule(!c.Payload, "payload in a tombstone")
	}
	from := c.From
	if c.Over && c.To != "" && c.To != idempo.StateExpired {
		from = ""
	}
	what, legal := steps()[[2]idempo.State{from, c.To}]
	if !legal {
		return append(wrong, "no such step")
	}
	if c.From == "" || c.To == "" {
		return wrong
	}
	rule(c.ToAttempt >= c.FromAttempt, "the attempt shrank")
	if from == "" {
		return wrong
	}
	own := c.ToAttempt == c.FromAttempt
	rule(what == "either" || own == (what == "same"), "the attempt is to be %s", what)
	rule(own || c.ToAttempt == c.FromAttempt+1, "the attempt grew by more than one")
	switch {
	case c.To == idempo.StateCompleted && c.From != c.To && own:
		rule(c.ToToken == c.FromToken || c.ToToken == "", "completed by another token")
	case c.From == idempo.StatePending && c.To == c.From && own:
		rule(c.ToToken == c.FromToken, "renewed by another token")
	case c.From == idempo.StatePending && !own:
		rule(!c.FromLeaseAlive, "taken over while the lease was alive")
	}
	again := c.To == idempo.StateFailed && (c.From == idempo.StateCompleted || c.From == idempo.StateExpired)
	rule(c.ToGeneration == c.FromGeneration || again && c.ToGeneration == c.FromGeneration+1, "another generation")
	return wrong
}
