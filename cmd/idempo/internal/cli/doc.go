// Package cli is the command line of idempo: it turns arguments into calls and outcomes into text and exit codes.
//
// [Run] is the whole program. It touches no global state: arguments, environment, streams and signals come in a [Process], so
// a test runs any command the way a shell does. Data goes to stdout, everything else to stderr; the exit codes are one table
// for all commands (exit.go).
//
// Layer: cmd.
package cli
