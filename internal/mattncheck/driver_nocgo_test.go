//go:build !cgo

package mattncheck

const linked = false
