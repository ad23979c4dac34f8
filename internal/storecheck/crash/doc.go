// Package crash kills a guarded service with SIGKILL at every step of a call, on real databases, and compares what is left
// with the table of outcomes that docs/guarantees.md promises. `make crash` runs it with 100 kills for each step.
//
// The service is this test binary, started again. Its points come from a wrapper around the store, from a wrapper around
// the SQLite driver, and from a proxy before PostgreSQL: nothing in the product knows that it is being tested, and there
// is no build of it with hooks. The test's own process makes none of the calls: it is the far side that counts effects,
// and it reads the tables through connections of its own. Retries are made by a second, surviving service.
//
// It holds tests only.
package crash
