// Package postgres is the store over PostgreSQL 13 or newer, by database/sql and any driver.
//
//	store, err := postgres.New(ctx, db, postgres.Options{}) // after postgres.Migrate(ctx, db, postgres.Options{})
//	eng, err := idempo.New(store, idempo.Config{…})
//
// Atomic claims share the transaction of their effect: Tx(ctx) is the one that the engine opened, WithTx(ctx, tx) joins
// the caller's own. Package idempgx (contrib/pgx) is this store over a pgx pool, with the same SQL in fewer round trips.
//
// The primary key decides every race; advisory locks only keep duplicates from waiting and work from running twice.
// What it never promises: a commit that the server acknowledged and then lost (Strict refuses such servers), and
// anything read from a standby.
//
// Layer: adapter.
package postgres
