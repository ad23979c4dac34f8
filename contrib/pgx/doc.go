// Package idempgx is the PostgreSQL store over a pgx pool: package postgres with the same SQL and the same logic, and
// what travels together in one flight. An atomic call costs no round trip beside those of its own transaction: BEGIN
// brings the claim along, COMMIT the finished record.
//
//	store, err := idempgx.New(ctx, pool, idempgx.Options{})
//	b, err := eng.Do(ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
//		_, err := idempgx.Tx(ctx).Exec(ctx, "insert into orders …")
//		…
//	})
//
// Before a synchronous standby let Configure prepare the pool's configuration: a COMMIT whose wait for the standby was cancelled is
// then not taken for a durable one.
//
// It works with every query exec mode of pgx; behind PgBouncer in transaction mode use exec, cache_describe or simple.
//
// Layer: contrib.
package idempgx
