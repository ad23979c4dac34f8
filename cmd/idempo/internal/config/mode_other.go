//go:build !unix

package config

import "io/fs"

// worldReadable cannot be told from the mode bits here, so nothing is warned of.
func worldReadable(fs.FileInfo) bool { return false }
