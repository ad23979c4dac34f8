// Package demo plays four accidents that happen to payment calls, with and without idempo.
//
// A small payments service (service.go) writes every charge to a ledger file of its own. It runs twice, as processes of their
// own: bare, and behind a gateway. A client with retries (client.go) calls both through the same accidents (scenes.go), and
// then the ledgers are counted: by the demo, not by the services. The accident "crash" is played a third time on a service that
// uses the library's atomic guard (library.go).
//
// [Page] plays the same scenes in a browser (page.go), where the crash waits in doubt for a person.
//
// Everything listens on loopback, on free ports, and lives in one temporary folder; [Stage.Close] leaves no process and no file.
// A child also ends by itself when its standard input closes, so that nothing outlives a demo that was killed.
//
// Layer: cmd.
package demo
