// Package mutants breaks the engine and its stores on purpose, one rule at a time, and shows that the suite notices.
//
// A mutant is a patched copy of one file, given to the go command by -overlay: nothing in the product can be switched,
// and no build but that of the test has it. Each names the test that must fail with it; without it the same test must
// pass.
//
// It holds tests only.
package mutants
