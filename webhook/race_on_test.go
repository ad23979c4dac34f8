//go:build race

package webhook

const raced = true // the race detector allocates
