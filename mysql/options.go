package mysql

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idempo/idempo/internal/sqlkit"
)

// Options of a Store and of its migrations. The zero value works. Tables are in the database of the connection.
type Options struct {
	// Prefix is put before the name of every table, index and constraint: [a-z_][a-z0-9_]{0,39}. Default idempo_. Two
	// prefixes in one database are two stores.
	Prefix string
	// Strict refuses a server on which an acknowledged commit can be lost. Default true; with new(false) it is a
	// warning.
	Strict *bool
	// TxIdle is how long a transaction that InTx opened may be idle before the server ends it, so that a host that was
	// cut off frees its keys. Whole seconds, 1 s to 1 h, default 10 s.
	TxIdle time.Duration
	// ErrorNumber returns the server's error number in a driver's error, 0 if it has none. Default: the field Number of
	// the error, or of one that it wraps, as github.com/go-sql-driver/mysql has it.
	ErrorNumber func(error) int
	// Logger gets the warnings of New. Default none.
	Logger *slog.Logger
}

func (o Options) names() sqlkit.Names {
	n := sqlkit.Names{Prefix: o.Prefix, Quote: '`'}
	if n.Prefix == "" {
		n.Prefix = "idempo_"
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
		return fmt.Errorf("mysql: %w", err)
	}
	return nil
}

func (o Options) strict() bool { return o.Strict == nil || *o.Strict }

// idle is TxIdle in the server's seconds.
func (o Options) idle() int {
	if o.TxIdle == 0 {
		return 10
	}
	return int((o.TxIdle + time.Second - 1) / time.Second)
}

func (o Options) warn(msg string) {
	if o.Logger != nil {
		o.Logger.Warn(msg)
	}
}
