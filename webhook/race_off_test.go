//go:build !race

package webhook

const raced = false
