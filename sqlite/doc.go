// Package sqlite keeps records in a SQLite file, beside the application's own tables or alone: one host, nothing else
// to install. It uses database/sql only; the program links a driver, modernc.org/sqlite ("sqlite") or
// github.com/mattn/go-sqlite3 ("sqlite3").
//
//	store, err := sqlite.Open(ctx, "sqlite", "orders.db", sqlite.Options{}) // WAL, full sync, migrated
//	defer store.Close()
//	eng, err := idempo.New(store, idempo.Config{…})
//	b, err := eng.Do(ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
//		_, err := sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO orders …") // the claim's own transaction
//		return idempo.Result{Status: 201}, err
//	})
//
// Writers of one process stand in one fair line and share commits where they can; readers run beside them and take no
// lock. Several processes may use one file. It never promises anything on a network file system, and refuses one.
// Nothing is ever lost that was acknowledged, as long as the disk stores what it acknowledges.
//
// Inside Engine.InTx and an atomic Do the write lock is held from the first claim, or the first Tx, to the end: keep
// the work short, and write to the same file only through Tx(ctx). Work that outlives a lock is run again as a whole.
//
// DESIGN.md holds the invariants. Layer: adapter.
package sqlite
