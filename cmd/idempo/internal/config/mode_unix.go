//go:build unix

package config

import "io/fs"

// worldReadable says whether others than the owner and the group may read the file.
func worldReadable(st fs.FileInfo) bool { return st.Mode().Perm()&0o004 != 0 }
