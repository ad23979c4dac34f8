// Package operator is what an operator can do with a store: find keys, explain what became of one, settle, release, retry and
// purge, each with a reason that stays in the audit. Command line, API and dashboard all stand on its [Service].
//
//	ops, err := operator.New(store, operator.Config{Engine: engine})
//	shown, err := ops.Show(ctx, operator.ShowParams{By: me, Target: operator.Target{Ref: "k_7m2qd…"}})
//	done, err := ops.Resolve(ctx, operator.ResolveParams{To: idempo.StateFailed, Why: operator.Why{
//		By: me, Target: operator.Target{Ref: shown.Record.Ref()}, On: operator.SeenOf(shown.Record), Reason: "not in the bank portal"}})
//
// What a store must be able to do for that are one-method interfaces: [Lister], [Historian], [Changer], [Auditor], [Counter], and
// [DigestKeeper] for who starts a process. Reading takes no lock and, [DigestKeeper] apart, writes nothing. Records are what a
// store returns everywhere else: effective on the store's clock, the key as a digest. The rules of what may be done to which
// record are not in a store but in [Change.Judge].
//
// Every change names the attempt and the state it was decided on: if the key has moved, nothing is done. The change and its
// audit row are committed together or not at all, and a refusal has its row as well. A [Principal] that is limited to tenants,
// or has a lesser role, is told of what it may not see or do what it would be told of an unknown key.
//
// What it never promises: that a list is one moment. Records that exist throughout are listed exactly once; those that come,
// go or change while it is read may be seen in either form, or not.
//
// Layer: domain.
package operator
