package idempgx_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
)

// A pool before a synchronous standby. What was set as OnNotice before is still called.
func ExampleConfigure() {
	open := func(ctx context.Context, dsn string) (idempo.Store, error) {
		// region: configure
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		idempgx.Configure(config)
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		return idempgx.New(ctx, pool, idempgx.Options{})
		// end: configure
	}
	_ = open // it needs a server

	config, err := pgxpool.ParseConfig("postgres://app@db.example/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { fmt.Println("heard:", n.Message) }
	idempgx.Configure(config)
	config.ConnConfig.OnNotice(nil, &pgconn.Notice{Code: "00000", Message: "table is there already, skipping"})
	// Output: heard: table is there already, skipping
}
