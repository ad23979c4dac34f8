// Package mysql is the store over MySQL 8.0 or newer and MariaDB 10.6 or newer, by database/sql and any driver whose
// errors have a field Number (or Options.ErrorNumber).
//
//	store, err := mysql.New(ctx, db, mysql.Options{}) // after mysql.Migrate(ctx, db, mysql.Options{})
//	eng, err := idempo.New(store, idempo.Config{…})
//
// Atomic claims share the transaction of their effect: Tx(ctx) is the one that the engine opened, WithTx(ctx, tx) joins
// the caller's own. It must be READ COMMITTED to be free of gap locks; it is right at every level.
//
// The primary key decides every race. A claim never waits for an open transaction: it reads with NOWAIT first. What it
// never promises: a commit that the server acknowledged and then lost (Strict refuses such servers), and anything read
// from a replica.
//
// Layer: adapter.
package mysql
