// Package promise makes the contract of what a configuration serves: the guarded routes of its gateway, what passes untouched, and its
// webhook sources. The command line, the API and the dashboard say the same because they ask here.
//
// Layer: cmd.
package promise
