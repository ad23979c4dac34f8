//go:build !linux

package sqlite

// networkFS returns "": this platform has no statfs in the standard library that names the kind. The guide says so.
func networkFS(string) string { return "" }
