// Package errorpage tests that docs/guides/errors.md and the codes in the source say the same: a section for each code, and
// a code for each section.
package errorpage
