// Package editdistance says how far a misspelt name is from a valid one. Layer: adapter. It imports nothing.
package editdistance
