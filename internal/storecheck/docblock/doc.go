// Package docblock reads the code blocks of README.md and the guides, so that a test can copy, compile and run them.
//
// A comment before a block says what to do with it; docs/contributing.md lists the words. A shell block without a comment
// is run, a Go block without one is a mistake: Go stands in the examples, where it is compiled, and is copied from there.
package docblock
