package idemhttp

import (
	"net/http"

	"github.com/idempo/idempo"
)

// outcomeOf is the table of what becomes of a handler's answer, where neither SetOutcome nor Rules.Outcomes decides:
//
//	success  2xx, 3xx                                            keep
//	final    4xx                                                 atomic: undo the writes, keep the answer; leased: keep
//	not now  401 403 407 408 425 429; 503 with Retry-After       release
//	failed   everything else                                     atomic: release; leased: in doubt
//
// An answer of class broken never gets here: see brokenOutcome.
func outcomeOf(status int, header http.Header, guard idempo.Guard) Outcome {
	switch {
	case status >= 200 && status < 400:
		return OutcomeKeep
	case status == 401, status == 403, status == 407, status == 408, status == 425, status == 429:
		return OutcomeRelease
	case status == http.StatusServiceUnavailable && header.Get("Retry-After") != "":
		return OutcomeRelease
	case status >= 400 && status < 500:
		return OutcomeKeepFailure
	default:
		return brokenOutcome(guard)
	}
}

// brokenOutcome is what becomes of an attempt whose answer says nothing about its effect: a transaction takes the effect
// back, under a lease nobody knows.
func brokenOutcome(guard idempo.Guard) Outcome {
	if guard == idempo.GuardAtomic {
		return OutcomeRelease
	}
	return OutcomeInDoubt
}

// known says whether o is one of the four outcomes.
func (o Outcome) known() bool {
	switch o {
	case OutcomeKeep, OutcomeKeepFailure, OutcomeRelease, OutcomeInDoubt:
		return true
	}
	return false
}
