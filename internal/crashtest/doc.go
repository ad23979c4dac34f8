// Package crashtest holds the tools of tests that kill a service with SIGKILL and count, from another process, what is
// left of its work.
//
//   - [Process] is a service in a process of its own: it gets jobs, names the points it reaches, and is killed there.
//   - [Stage] is the service's side of that: it announces points and halts at one. It lives in the test binary, around the
//     store that a test opens; what is built for production has no hook at all.
//   - [Ledger] is the outside world: it counts calls and effects where no crash reaches.
//   - [Wire] stands between a service and a PostgreSQL server, finds statements by their text, and loses them, or their
//     answers.
//   - [Tally] counts what a run did and calls it void if that is less than it claims.
//
// The package imports nothing of ours, so that a bug cannot judge itself.
//
// The smallest use: start the test binary again with an environment variable, let its TestMain call [Stage.Serve], then
//
//	p, err := crashtest.Start(ctx, exe, env)
//	err = p.Post(job)
//	_, err = p.Await(ctx, "worked")
//	err = p.Kill()
//
// Layer: test kit, for _test.go files only. It imports the standard library alone.
package crashtest
