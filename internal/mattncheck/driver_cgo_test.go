//go:build cgo

package mattncheck

import _ "github.com/mattn/go-sqlite3" // driver sqlite3

const linked = true
