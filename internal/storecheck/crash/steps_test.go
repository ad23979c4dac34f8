package crash

import (
	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
)

// step is one line of the table of crashes.
type step struct{ id, name string }

func steps() []step {
	return []step{
		{"CT1", "[stores/CT1] before the claim is sent"},
		{"CT2", "[stores/CT2] claim sent, answer not read"},
		{"CT3", "[stores/CT3] after the claim, before the effect"},
		{"CT4", "[stores/CT4] after the effect, before the result is stored"},
		{"CT5", "[stores/CT5] result written, COMMIT not sent"},
		{"CT6", "[stores/CT6] COMMIT on the wire"},
		{"CT7", "[stores/CT7] COMMIT answered, caller not yet"},
	}
}

// Modes of CT6: what became of the COMMIT.
const (
	lost     = "lost"
	answered = "answered"
	raced    = "raced" // nobody knows
)

// plan says how a service is brought to a step: by a point where it halts, one that it passes, or a trap on the wire.
type plan struct {
	halt, pass string
	trap       crashtest.Trap
	mode       string
}

// everywhere is the plan of the steps that do not depend on the database.
func everywhere(step string) plan {
	switch step {
	case "CT1":
		return plan{halt: "claim"}
	case "CT3":
		return plan{halt: "work"}
	case "CT4":
		return plan{halt: "worked"}
	case "CT7":
		return plan{halt: "done"}
	}
	panic("no plan for " + step)
}

// outcome is what a step must come to once the caller has retried to a final answer.
type outcome struct {
	verdict idempo.Verdict
	effects int
	calls   int // of the far side; for an effect in the database: as many as effects
}

// outcomes are those that a step may have: one, or two where nobody can know which.
func outcomes(step, guard, mode string) []outcome {
	run, replay := outcome{idempo.VerdictRun, 1, 1}, outcome{idempo.VerdictReplay, 1, 1}
	undone := run // what an owner leaves behind whose effect may have happened and whose result was not stored
	before := run // the same, before the effect
	switch guard {
	case opHold:
		undone, before = outcome{idempo.VerdictInDoubt, 1, 1}, outcome{idempo.VerdictInDoubt, 0, 0}
	case opProbe:
		undone = replay
	case opRerun:
		undone = outcome{idempo.VerdictRun, 1, 2}
	}
	switch step {
	case "CT1":
		return []outcome{run}
	case "CT2", "CT3":
		return []outcome{before}
	case "CT4", "CT5":
		return []outcome{undone}
	case "CT7":
		return []outcome{replay}
	}
	switch mode {
	case lost:
		return []outcome{undone}
	case answered:
		return []outcome{replay}
	}
	return []outcome{undone, replay}
}
