// Package mattncheck runs the store contract on SQLite by github.com/mattn/go-sqlite3, a driver that needs cgo: a module of its
// own, so that nothing else is built with it. Without cgo its test fails where CI=true and is skipped elsewhere.
//
// Layer: test kit.
package mattncheck
