package cli

import (
	"fmt"
	"strconv"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// guide asks on a terminal for what the flags leave open: what happened, and why.
func (a *app) guide(v *acting, shown operator.Shown, w *operator.Why, result *idempo.Result) error {
	if !a.talks(v.q) {
		return nil
	}
	r := shown.Record
	if v.action == operator.ActionResolve && !v.completed && !v.failed && !v.probe && r.State == idempo.StateInDoubt {
		if err := a.guideChoice(v, shown, result); err != nil {
			return err
		}
	}
	for w.Reason == "" {
		answer, ok := a.ask("Reason, for the audit: ")
		if !ok {
			return notConfirmed()
		}
		w.Reason = answer
	}
	return nil
}

func notConfirmed() *failure {
	return &failure{exit: exitNo, code: "confirm_needed", message: "not confirmed; nothing was done"}
}

// guideChoice shows what is known and asks what happened.
func (a *app) guideChoice(v *acting, shown operator.Shown, result *idempo.Result) error {
	r := shown.Record
	say := func(format string, args ...any) {
		a.err.line(wrap(escape(fmt.Sprintf(format, args...)), "  ", 79))
	}
	a.err.printf("%s of %s is in doubt.\n\nKnown\n", r.Ref(), escape(r.Key.Operation))
	for _, m := range shown.Timeline {
		text := a.moment(m.At) + "  " + m.What
		if m.Attempt > 0 {
			text += ", attempt " + strconv.FormatInt(m.Attempt, 10)
		}
		if m.Who != "" {
			text += ", " + m.Who
		}
		if m.Text != "" {
			text += ": " + m.Text
		}
		say("%s", text)
	}
	for _, ref := range r.References {
		say("the owner noted %s:%s", ref.Type, ref.ID)
	}
	a.err.line("\nNot known")
	say("whether attempt %d had its effect. Look where the effect would be, at the time above.", r.Attempt)
	if r.DerivedKey != "" {
		say("If the service behind got a key, it was %s.", r.DerivedKey)
	}
	a.err.line("\nChoices")
	say("1  it happened: calls with this key are answered from now on, and nothing runs")
	say("2  nothing happened: the next call with this key runs")
	if r.OnCrash == idempo.OnCrashProbe {
		say("3  ask the probe, and apply what it says")
	}
	say("q  leave it in doubt")
	for {
		answer, ok := a.ask("\nWhat happened? ")
		switch {
		case !ok, answer == "q":
			return notConfirmed()
		case answer == "1":
			v.completed = true
			return a.guideAnswer(result)
		case answer == "2":
			v.failed = true
			return nil
		case answer == "3" && r.OnCrash == idempo.OnCrashProbe:
			v.probe = true
			return nil
		}
	}
}

// guideAnswer asks what calls are answered from now on.
func (a *app) guideAnswer(result *idempo.Result) error {
	for result.Status == 0 {
		answer, ok := a.ask("Status that calls get [200]: ")
		if !ok {
			return notConfirmed()
		}
		if answer == "" {
			answer = "200"
		}
		if n, err := strconv.Atoi(answer); err == nil && n >= 100 && n <= 599 {
			result.Status, result.Failing = n, n >= 400
		}
	}
	for result.Resource.IsZero() {
		answer, ok := a.ask("What was made, as type:id [nothing]: ")
		if !ok {
			return notConfirmed()
		}
		if answer == "" {
			return nil
		}
		if res, err := parseResource("resource", answer); err == nil {
			result.Resource = res
		}
	}
	return nil
}
