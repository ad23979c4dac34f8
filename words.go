package idempo

// Guard says where the effect of an operation happens and so what can be promised about it.
type Guard string

const (
	// GuardAtomic: claim, effect and result commit in one transaction of the store's database. At most one effect is
	// ever committed per key, for as long as the record or its tombstone lives.
	GuardAtomic Guard = "atomic"
	// GuardLeased: the claim commits first, the effect runs anywhere under a lease, the result commits fenced by the
	// claim's token. At most one effect is started per lease and token; what nobody can prove is in doubt.
	GuardLeased Guard = "leased"
)

// OnCrash says what follows when the owner of a leased claim vanished after the effect may have begun.
type OnCrash string

const (
	// OnCrashHold: the key is in doubt until somebody proves what happened. The default, and the strictest.
	OnCrashHold OnCrash = "hold"
	// OnCrashProbe: Operation.ProbeFunc is asked whether the effect happened.
	OnCrashProbe OnCrash = "probe"
	// OnCrashRerun: the work runs again with the same derived key; right only where the far side honours that key.
	OnCrashRerun OnCrash = "rerun"
)

// stricter returns the stricter of two policies: hold, then probe, then rerun.
func stricter(a, b OnCrash) OnCrash {
	if a == OnCrashHold || b == OnCrashHold {
		return OnCrashHold
	}
	if a == OnCrashProbe || b == OnCrashProbe {
		return OnCrashProbe
	}
	return OnCrashRerun
}

// Verdict is the answer to "may I do this now?".
type Verdict string

const (
	// VerdictRun: the key is won; do the work and complete the claim.
	VerdictRun Verdict = "run"
	// VerdictReplay: the work is done; Record holds its result.
	VerdictReplay Verdict = "replay"
	// VerdictInProgress: another owner is at work; ask again after RetryAfter.
	VerdictInProgress Verdict = "in_progress"
	// VerdictMismatch: the key stands for another request. Record holds no result.
	VerdictMismatch Verdict = "mismatch"
	// VerdictInDoubt: an effect may have happened and nobody has proved either way.
	VerdictInDoubt Verdict = "in_doubt"
	// VerdictExpired: the work is done and its result is no longer kept; the resource pointer may be.
	VerdictExpired Verdict = "expired"
)

// State is what a record says about its key. Records returned by a Store carry the effective state: leases, expiry
// and the end of tombstones are applied on the store's clock, whether or not anything swept.
type State string

const (
	// StateIssued: the server handed out a one-time key that nobody has used yet.
	StateIssued State = "issued"
	// StatePending: somebody holds a lease on the key, or held one and vanished before the effect began.
	StatePending State = "pending"
	// StateCompleted: the work is done and its result is kept.
	StateCompleted State = "completed"
	// StateFailed: it is known that nothing happened; the key may run again with the same fingerprint.
	StateFailed State = "failed"
	// StateInDoubt: an effect may have happened and nobody has proved either way.
	StateInDoubt State = "in_doubt"
	// StateExpired: a tombstone: the work was done, its result is gone.
	StateExpired State = "expired"
)
