// Package history records what callers asked and what they were told while faults happen, and checks afterwards that one
// order of events explains it: the first definite answer of a key fixes its value, and an attempt runs once.
//
// A call that got no definite answer is kept as open: its effect may take place at any later time, or never. Keys are
// checked one by one, by github.com/anishathalye/porcupine.
//
// The smallest use:
//
//	var h history.History
//	c := h.Begin(key)
//	answer := ask(key, c.Content)
//	c.Run(answer, attempt) // or Replay, Wait, Refused, Open
//	err := h.Check()
package history
