//go:build !race

package idempo_test

const raceEnabled = false
