package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// checked is how many connections New looks at, all open at once: a PRAGMA sent through the pool has reached one of
// them only.
const checked = 3

// checkConnections refuses a caller's handle whose connections would lose what was acknowledged or fail under load.
func checkConnections(ctx context.Context, db *sql.DB, o Options) error {
	n := checked
	if limit := db.Stats().MaxOpenConnections; limit > 0 {
		n = min(n, limit)
	}
	var file string
	for range n {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if file, err = checkConnection(ctx, conn); err != nil {
			return err
		}
	}
	if kind := networkFS(folder(file)); kind != "" {
		return fmt.Errorf("sqlite: new: the file is on a network file system (%s), where SQLite's locks and shared memory do not hold", kind)
	}
	return checkImmediate(ctx, db, file)
}

// checkConnection checks one connection and returns the file it is on.
func checkConnection(ctx context.Context, conn *sql.Conn) (file string, err error) {
	var seq int
	var name, mode string
	var sync, wait int
	var queryOnly bool
	one := func(pragma string, dest ...any) {
		if err == nil {
			err = conn.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(dest...)
		}
	}
	one("database_list", &seq, &name, &file)
	one("journal_mode", &mode)
	one("synchronous", &sync)
	one("busy_timeout", &wait)
	one("query_only", &queryOnly)
	say := func(what, modernc, mattn string) error {
		return fmt.Errorf("sqlite: new: %s on a connection of the handle: put %s (modernc) or %s (mattn) into the DSN, so that every connection has it", what, modernc, mattn)
	}
	switch {
	case err != nil:
		return "", err
	case file == "":
		return "", errors.New("sqlite: new: the database is in memory: each connection may be another one, and it is gone with the process; use a file, or memstore")
	case queryOnly:
		return "", errors.New("sqlite: new: query_only is set on a connection of the handle: the store has to write")
	case !strings.EqualFold(mode, "wal"):
		return "", say("journal_mode is "+mode, "_pragma=journal_mode(WAL)", "_journal_mode=WAL")
	case sync < 2:
		return "", say(fmt.Sprintf("synchronous is %d, so acknowledged records can be lost,", sync), "_pragma=synchronous(FULL)", "_synchronous=FULL")
	case wait < 1000:
		return "", say(fmt.Sprintf("busy_timeout is %d ms", wait), "_pragma=busy_timeout(5000)", "_busy_timeout=5000")
	}
	return file, writableConn(ctx, conn)
}

// writableConn refuses a file or handle that is read-only. Only a statement that would change something tells: there,
// BEGIN IMMEDIATE is no more than BEGIN.
func writableConn(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		_, err = conn.ExecContext(ctx, "CREATE TABLE idempo_probe (n)")
		_, rerr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		err = errors.Join(err, rerr)
	}
	switch {
	case busy(err): // somebody writes: so it can be written
		return nil
	case primary(resultCode(err)) == codeReadOnly:
		return errors.New("sqlite: new: the database is read-only: the store has to write")
	}
	return err
}

// checkImmediate begins a transaction as the work will, and sees from a connection of its own whether the write lock is
// taken. While another process writes the answer is "taken" too, and the check passes.
func checkImmediate(ctx context.Context, db *sql.DB, file string) error {
	probe := sql.OpenDB(opener{db.Driver(), fileURI(file)})
	defer func() { _ = probe.Close() }()
	probe.SetMaxOpenConns(1)
	if _, err := probe.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return nil // opened in a way of its own, with a key or a VFS: what cannot be asked is believed
	}
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := probe.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil
	}
	_, _ = probe.ExecContext(ctx, "ROLLBACK")
	return errors.New("sqlite: new: transactions of the handle begin without the write lock, and fail when another one was faster: put _txlock=immediate into the DSN (both drivers)")
}

// opener opens one name with a driver.
type opener struct {
	driver driver.Driver
	name   string
}

// Connect opens a connection.
func (o opener) Connect(context.Context) (driver.Conn, error) { return o.driver.Open(o.name) }

// Driver returns the driver.
func (o opener) Driver() driver.Driver { return o.driver }
