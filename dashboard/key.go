package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// keyPage explains one key.
type keyPage struct {
	Record   idempo.Record
	Held     operator.Held // the open transaction that runs it, where one is known
	Ref      string
	Attempts []attempt // the newest first
	Audit    []operator.Entry
	Next     []operator.NextStep
	Actions  actions
	Answer   *answer // revealed
	Done     string  // what has just been done
	Moved    *failure
	From     string // page that a form came from
}

// attempt is one attempt with what happened in it, the oldest first.
type attempt struct {
	Number  int64
	Current bool
	State   idempo.State
	Owner   string
	Moments []moment
}

// moment is something that happened, and how long after the one before it.
type moment struct {
	operator.Moment
	After time.Duration
	Kind  string // for the eye: run, good, bad, doubt, person
}

// actions say what can be done to a key by who looks at it.
type actions struct {
	Resolve, Probe, Release, Retry, RetryForce, Purge, Reveal bool
	Tombstones, Doubts                                        bool
}

// actionsOf are those that the state allows and the role admits.
func actionsOf(r idempo.Record, by Principal) actions {
	acts, admin := by.Role == operator.RoleOperator || by.Role == operator.RoleAdmin, by.Role == operator.RoleAdmin
	doubtful := r.State == idempo.StateInDoubt || r.Lapsed(r.Now) && !r.StartedAt.IsZero()
	finished := r.State == idempo.StateCompleted || r.State == idempo.StateExpired
	a := actions{
		Resolve: acts && doubtful, Probe: acts && doubtful && r.OnCrash == idempo.OnCrashProbe,
		Release: acts && r.State == idempo.StatePending && !doubtful,
		Retry:   acts && finished,
		Purge:   admin && !doubtful && r.State != idempo.StatePending,
		Reveal:  admin && r.State == idempo.StateCompleted && r.BodyKept,
	}
	a.RetryForce = a.Retry && !r.Result.Failing
	a.Tombstones = a.Purge && finished
	a.Doubts = admin && r.State == idempo.StateInDoubt
	return a
}

// None says that nothing can be done.
func (a actions) None() bool { return a == actions{} }

// answer is a stored answer in clear.
type answer struct {
	Status  int
	Header  [][2]string
	Text    string // of a body that is text
	Binary  bool
	Size    int64
	Pretty  bool
	Reason  string
	Failing bool
}

// answerOf makes a stored answer text. Whatever it holds, it is shown as characters.
func answerOf(r idempo.Record, reason string) *answer {
	a := &answer{Status: r.Result.Status, Header: r.Result.Header, Size: int64(len(r.Result.Body)), Reason: reason, Failing: r.Result.Failing}
	body := r.Result.Body
	if len(body) > 256<<10 {
		a.Binary = true // too long for a page as well
		return a
	}
	var out strings.Builder
	if json.Valid(body) {
		var b []byte
		if b = indented(body); b != nil {
			a.Pretty = true
			body = b
		}
	}
	if !utf8.Valid(body) || strings.ContainsRune(string(body), 0) {
		a.Binary = true
		return a
	}
	out.Write(body)
	a.Text = out.String()
	return a
}

func (h *Handler) key(v *visit) error {
	ctx, cancel := context.WithTimeout(v.ctx(), patience)
	defer cancel()
	p, err := v.keyPage(ctx, v.r.PathValue("ref"))
	if err != nil {
		return err
	}
	p.Done = doneText(v.r.URL.Query().Get("done"), p.Record)
	v.render(http.StatusOK, "key", pageData{Title: "Key " + short(p.Ref), Nav: "keys", Body: p})
	return nil
}

// doneText words what was just done from words that the address may hold; anything else says nothing.
func doneText(action string, r idempo.Record) string {
	switch operator.Action(action) {
	case operator.ActionResolve:
		if r.State == idempo.StateCompleted {
			return "Settled: it happened. Calls with this key get the answer you gave."
		}
		return "Settled: nothing happened. The next call with this key runs."
	case operator.ActionRelease:
		return "Released. Its owner's late result will be refused."
	case operator.ActionRetry:
		return "The next call with this key runs again."
	case operator.ActionPurge:
		return "What was kept is removed."
	}
	return ""
}

func (v *visit) keyPage(ctx context.Context, ref string) (keyPage, error) {
	shown, err := v.show(ctx, ref)
	if err != nil {
		if operator.CodeOf(err) == operator.CodeInvalid {
			err = &operator.Error{Code: operator.CodeNotFound}
		}
		return keyPage{}, err
	}
	r := shown.Record
	p := keyPage{Record: r, Held: shown.Held, Ref: r.Ref(), Attempts: attemptsOf(shown), Next: shown.Next, Actions: actionsOf(r, v.by)}
	p.Audit = slices.Clone(shown.Audit)
	slices.Reverse(p.Audit)
	return p, nil
}

// attemptsOf groups the timeline by attempt, the newest attempt first.
func attemptsOf(shown operator.Shown) []attempt {
	r := shown.Record
	var all []attempt
	at := func(n int64) *attempt {
		for i := range all {
			if all[i].Number == n {
				return &all[i]
			}
		}
		all = append(all, attempt{Number: n, Current: n == r.Attempt})
		return &all[len(all)-1]
	}
	for _, a := range shown.Attempts {
		*at(a.Attempt) = attempt{Number: a.Attempt, Current: a.Attempt == r.Attempt, State: a.State, Owner: a.Owner}
	}
	if r.Attempt > 0 {
		a := at(r.Attempt)
		a.State = r.State
		if a.Owner == "" {
			a.Owner = r.Owner
		}
	}
	for _, m := range shown.Timeline {
		a := at(m.Attempt)
		next := moment{Moment: m, Kind: kindOf(m)}
		if n := len(a.Moments); n > 0 {
			next.After = m.At.Sub(a.Moments[n-1].At)
		}
		a.Moments = append(a.Moments, next)
	}
	slices.SortFunc(all, func(x, y attempt) int { return int(y.Number - x.Number) })
	return all
}

// kindOf is how a moment looks.
func kindOf(m operator.Moment) string {
	for _, a := range operator.Actions() {
		if strings.HasPrefix(m.What, string(a)) {
			return "person"
		}
	}
	switch m.What {
	case "completed":
		return "good"
	case "in_doubt", "lease ended", "ended without an answer":
		return "doubt"
	case "failed":
		return "bad"
	}
	return "run"
}
