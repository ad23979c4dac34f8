// Package around stands between an engine and its store, for the test kits: every call passes through a function that may
// do it, repeat it, or let it fail. It links nothing of package testing.
//
// Layer: adapter.
package around
