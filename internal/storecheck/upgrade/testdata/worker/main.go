// Command worker is a program of a user of idempo. The test builds it twice: with the library of an earlier commit and with the
// present one.
// Its environment says what to do: WORKER_DO (migrate, serve), WORKER_KIND (postgres, mysql, sqlite) and WORKER_PLACE, a DSN.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// order asks for an intent; answer is what its caller hears.
type order struct{ Operation, Key string }

type answer struct{ Verdict, Body, Code, Err string }

// worker has a store, the same place without it, and how to find the transaction of an atomic claim.
type worker struct {
	store  idempo.Store
	db     *sql.DB
	tx     func(context.Context) *sql.Tx
	effect string
	engine *idempo.Engine
}

func main() {
	if err := run(context.Background(), os.Getenv("WORKER_DO"), os.Getenv("WORKER_KIND"), os.Getenv("WORKER_PLACE")); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, what, kind, place string) error {
	driver := map[string]string{"postgres": "pgx"}[kind]
	if driver == "" {
		driver = kind
	}
	db, err := sql.Open(driver, place)
	if err != nil {
		return err
	}
	if what == "migrate" {
		switch kind {
		case "postgres":
			return postgres.Migrate(ctx, db, postgres.Options{})
		case "mysql":
			return mysql.Migrate(ctx, db, mysql.Options{})
		}
		return sqlite.Migrate(ctx, db, sqlite.Options{})
	}
	w := &worker{db: db, effect: "insert into effects (what) values (?)"}
	switch kind {
	case "postgres":
		w.effect = "insert into effects (what) values ($1)"
		w.tx = postgres.Tx
		w.store, err = postgres.New(ctx, db, postgres.Options{})
	case "mysql":
		w.tx = mysql.Tx
		w.store, err = mysql.New(ctx, db, mysql.Options{})
	default: // as the place of an application that migrates by itself
		w.tx = sqlite.Tx
		w.store, err = sqlite.New(ctx, db, sqlite.Options{})
	}
	if err != nil {
		return err
	}
	w.engine, err = idempo.New(w.store, idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations: []idempo.Operation{{Name: "atomic", Guard: idempo.GuardAtomic}, {Name: "leased", Guard: idempo.GuardLeased}},
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	swept := make(chan error, 1)
	go func() { swept <- w.engine.Run(running) }()
	stage := crashtest.NewStage("", "", os.Stdout)
	stage.Serve(os.Stdin, func(text json.RawMessage) any {
		var o order
		if err := json.Unmarshal(text, &o); err != nil {
			return answer{Err: err.Error()}
		}
		return w.do(ctx, o)
	})
	stage.Wait()
	stop()
	<-swept
	return nil
}

func (w *worker) do(ctx context.Context, o order) answer {
	req := idempo.Request{Key: idempo.Key{Tenant: "t", Operation: o.Operation, ID: o.Key}, Input: [][]byte{[]byte(o.Key)}}
	b, err := w.engine.Do(ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		var err error
		if o.Operation == "atomic" {
			_, err = w.tx(ctx).ExecContext(ctx, w.effect, o.Key)
		} else {
			_, err = w.db.ExecContext(ctx, w.effect, o.Key)
		}
		return idempo.Result{Status: 201, Body: []byte("made " + o.Key), Resource: idempo.Resource{Type: "thing", ID: o.Key}}, err
	})
	a := answer{Verdict: string(b.Verdict), Body: string(b.Record.Result.Body)}
	if err != nil {
		a.Err, a.Code = err.Error(), "other"
		if e := (*idempo.Error)(nil); errors.As(err, &e) {
			a.Code = e.Code
		}
	}
	return a
}
