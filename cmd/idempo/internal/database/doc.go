// Package database opens the configured store and looks after its schema, so that the commands need not know which database it
// is. It links the drivers: modernc.org/sqlite, pgx and go-sql-driver/mysql.
//
// Errors say what a command has to answer: *[Unreachable] for a database that is not there, *[Unfit] for a schema that this
// binary does not work with; everything else is a setting or a fault. No error shows a password: URLs are masked.
//
// Layer: cmd.
package database
