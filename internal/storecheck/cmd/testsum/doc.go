// Command testsum runs `go test -json` with its arguments and prints what people want to know: each package as it ends,
// what a failed test printed, then every skipped test with its reason, and a last line "N passed, N failed, N skipped".
// A test with subtests counts as its subtests. The exit code is 1 if anything failed or did not build.
//
//	go run ./internal/storecheck/cmd/testsum -count=1 work
package main
