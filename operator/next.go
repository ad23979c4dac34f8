package operator

import "github.com/idempo/idempo"

// NextStep is something that can still become of a key: by itself, or by an action.
type NextStep struct {
	Action  Action // "": by itself
	Text    string // what it means
	Command string // that does it; "": none
}

// Next says what can become of a record as it is now, what comes by itself first.
func Next(r idempo.Record) []NextStep {
	ref := r.Ref()
	self := func(text string) NextStep { return NextStep{Text: text} }
	act := func(a Action, rest, text string) NextStep {
		return NextStep{Action: a, Text: text, Command: "idempo keys " + string(a) + " " + ref + rest + ` --reason "…"`}
	}
	happened := act(ActionResolve, " --completed", "it happened: calls with this key get the answer you give")
	nothing := act(ActionResolve, " --failed", "nothing happened: the next call with this key runs")
	switch {
	case r.State == idempo.StatePending && r.Lapsed(r.Now) && r.StartedAt.IsZero():
		return []NextStep{self("the next call with this key runs"), act(ActionRelease, " --nothing-happened", "gives it up at once")}
	case r.State == idempo.StatePending && r.Lapsed(r.Now):
		return []NextStep{self("its probe, the next call or its owner's late answer settles it"), happened, nothing}
	case r.State == idempo.StatePending:
		return []NextStep{self("its owner answers, or the lease ends"),
			act(ActionRelease, "", "takes it from its owner; it is in doubt then"),
			act(ActionRelease, " --nothing-happened", "takes it from its owner; the next call runs")}
	case r.State == idempo.StateInDoubt:
		steps := []NextStep{self("only its owner's late answer settles it; otherwise, find out what happened and say so")}
		switch r.OnCrash {
		case idempo.OnCrashProbe:
			steps[0] = self("the probe settles it, or its owner's late answer")
			steps = append(steps, act(ActionResolve, " --probe", "asks the probe now and applies what it says"))
		case idempo.OnCrashRerun:
			steps[0] = self("the next call with this key runs again, with the same derived key")
		}
		return append(steps, happened, nothing)
	case r.State == idempo.StateFailed:
		return []NextStep{self("the next call with this key and the same request runs")}
	case r.State == idempo.StateCompleted:
		show := NextStep{Text: "shows the stored answer", Command: "idempo keys show " + ref + " --body"}
		if r.Sealed != "" {
			show.Command = "idempo keys show --tenant T --operation O --id KEY --body"
		}
		steps := []NextStep{self("calls with this key get the stored answer"), show}
		if r.Result.Failing {
			return append(steps, act(ActionRetry, "", "the next call with this key runs again"))
		}
		return append(steps, act(ActionRetry, " --force --confirm "+ref, "severe: the next call does again what has succeeded"))
	case r.State == idempo.StateExpired:
		steps := []NextStep{self("calls with this key are told that it happened")}
		if r.Result.Failing {
			return append(steps, act(ActionRetry, "", "the next call with this key runs again"))
		}
		return append(steps, act(ActionRetry, " --force --confirm "+ref, "severe: the next call does again what has succeeded"))
	case r.State == idempo.StateIssued:
		return []NextStep{self("the next call with this key runs"), act(ActionPurge, "", "takes the key back")}
	}
	return nil
}
