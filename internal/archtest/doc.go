// Package archtest keeps the house in order: which package may import which, how large things may grow, how secrets are
// compared, and whether the documents name proofs that exist.
//
// It reads the tree: `go list`, `go mod edit -json`, the parsed sources and the Markdown pages. It never changes it. Each
// departure is a Finding, one line that names the place, the rule and what to do about it; no findings means all is well.
//
//	tree, err := archtest.Open(ctx, "../..")
//	policy, err := archtest.ParsePolicy(archtest.Table())
//	for _, f := range tree.CheckImports(policy) { t.Error(f) }
//
// What it does not promise: it sees code, not meaning. A rule is a net for the common slip, and review is for the rest.
//
// Its results depend on files that the test cache does not know of, so its tests run with -count=1.
//
// Layer: test kit. It uses the standard library alone and imports nothing of ours, so that a bug cannot judge itself.
package archtest
