package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idempo/idempo/internal/sqlkit"
)

// Options of a Store and of its migrations. The zero value works.
type Options struct {
	// Schema holds the store's tables: [a-z_][a-z0-9_]{0,39}. Default idempo. Two schemas are two stores.
	Schema string
	// Prefix is put before the name of every table, index and constraint. Default none.
	Prefix string
	// Strict refuses a server on which an acknowledged commit can be lost. Default true; with new(false) it is a
	// warning.
	Strict *bool
	// TxIdle is how long a transaction that InTx opened may be idle before the server ends it, so that a host that was
	// cut off frees its keys. 1 s to 1 h, default 10 s.
	TxIdle time.Duration
	// Logger gets the warnings of New. Default none.
	Logger *slog.Logger
}

func (o Options) names() sqlkit.Names {
	n := sqlkit.Names{Schema: o.Schema, Prefix: o.Prefix, Quote: '"'}
	if n.Schema == "" {
		n.Schema = "idempo"
	}
	return n
}

// check returns every mistake in o at once.
func (o Options) check() error {
	err := o.names().Check()
	if o.TxIdle != 0 && (o.TxIdle < time.Second || o.TxIdle > time.Hour) {
		err = errors.Join(err, fmt.Errorf("TxIdle must be from 1s to 1h"))
	}
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

func (o Options) strict() bool { return o.Strict == nil || *o.Strict }

func (o Options) idle() string {
	if o.TxIdle == 0 {
		return "10000"
	}
	return fmt.Sprint(o.TxIdle.Milliseconds())
}

func (o Options) warn(msg string) {
	if o.Logger != nil {
		o.Logger.Warn(msg)
	}
}
