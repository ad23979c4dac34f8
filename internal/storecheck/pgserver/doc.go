// Package pgserver starts PostgreSQL servers that one test has for itself: to stop, to kill, to fill, to promote.
//
// The programs come from the machine (initdb, pg_ctl, pg_basebackup). Where there are none a test is skipped, and fails
// with CI=true. Everything lies in a temporary folder and is stopped and removed at the end of the test.
//
// The smallest use:
//
//	s := pgserver.Start(t, "max_connections=20")
//	db, err := sql.Open("pgx", s.DSN())
//	s.Kill(t)
//	s.Up(t)
package pgserver
