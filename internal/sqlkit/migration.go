package sqlkit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var migrationFile = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)

// Migration is one file NNNN_name.sql: everything before a line "-- down" goes up, the rest goes down. In the part that
// goes down a line "-- only while empty: a, b" names tables that must be empty, so that no data is lost; without a part
// that goes down a migration cannot be undone.
//
// A name that begins with "add_" promises that the migration only adds: a release that does not know it works as before, and
// one that knows it does without, but for what was added, until it is applied. So releases that follow each other run on
// one schema, in any order of installing and migrating.
type Migration struct {
	Version  int
	Name     string
	SHA256   string // of the whole file, hex
	Up, Down string
	Empty    []string
	Indexes  []string // of a file that runs concurrently: its statements; Up has them without that word
}

// Applied is one row of table migrations.
type Applied struct {
	Version      int
	Name, SHA256 string
	At           time.Time
	By           string
}

// Migrations reads the migration files of dir. Their versions are 1, 2, 3 … without gap.
func Migrations(files fs.FS, dir string) ([]Migration, error) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	var all []Migration
	for _, e := range entries { // sorted by name
		m := migrationFile.FindStringSubmatch(e.Name())
		if m == nil {
			return nil, fmt.Errorf("migration %s: the name is not NNNN_name.sql", e.Name())
		}
		b, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", e.Name(), err)
		}
		v, _ := strconv.Atoi(m[1])
		if v != len(all)+1 {
			return nil, fmt.Errorf("migration %s: expected version %04d", e.Name(), len(all)+1)
		}
		all = append(all, parse(v, m[2], b))
	}
	return all, nil
}

func parse(version int, name string, file []byte) Migration {
	sum := sha256.Sum256(file)
	m := Migration{Version: version, Name: name, SHA256: hex.EncodeToString(sum[:])}
	up, down, _ := strings.Cut(string(file), "\n-- down\n")
	m.Up, m.Down = strings.TrimSpace(up)+"\n", strings.TrimSpace(down)
	if rest, ok := strings.CutPrefix(m.Up, "-- concurrently\n"); ok {
		m.Up = strings.ReplaceAll(m.Up, "index concurrently ", "index ")
		for text := range strings.SplitSeq(rest, ";\n") {
			if text = strings.TrimSpace(text); text != "" {
				m.Indexes = append(m.Indexes, text)
			}
		}
	}
	for line := range strings.Lines(m.Down) {
		if names, ok := strings.CutPrefix(strings.TrimSpace(line), "-- only while empty: "); ok {
			m.Empty = strings.Split(names, ", ")
		}
	}
	return m
}

const adding = "add_"

// Adds reports whether the migration only adds.
func (m Migration) Adds() bool { return strings.HasPrefix(m.Name, adding) }

// Required reports whether something is missing without which a release does not work.
func Required(pending []Migration) bool {
	return slices.ContainsFunc(pending, func(m Migration) bool { return !m.Adds() })
}

// File is the migration's file name.
func (m Migration) File() string { return fmt.Sprintf("%04d_%s.sql", m.Version, m.Name) }

// Pending returns what of all is not applied yet. A file that was changed after it had been applied is an error that
// names it, and so is a version that this release does not know, unless that only adds.
func Pending(all []Migration, applied []Applied) ([]Migration, error) {
	done := 0
	for _, a := range applied {
		switch {
		case a.Version > len(all) && strings.HasPrefix(a.Name, adding):
		case a.Version > len(all):
			return nil, fmt.Errorf("the schema has version %d, newer than this release, which knows %d: install the newer release", a.Version, len(all))
		case a.Version < 1 || all[a.Version-1].SHA256 != a.SHA256:
			return nil, fmt.Errorf("migration %s was changed after it had been applied: restore the released file", fileOf(all, a))
		}
		done = max(done, a.Version)
	}
	if done != len(applied) {
		return nil, fmt.Errorf("the schema has version %d, but %d migrations are recorded: restore table migrations", done, len(applied))
	}
	return all[min(done, len(all)):], nil
}

func fileOf(all []Migration, a Applied) string {
	if a.Version >= 1 && a.Version <= len(all) {
		return all[a.Version-1].File()
	}
	return fmt.Sprintf("%04d_%s.sql", a.Version, a.Name)
}

// Executor is a transaction or connection of database/sql.
type Executor interface {
	// ExecContext runs a statement without rows.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	// QueryContext runs a query; the caller closes the rows.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Ledger runs migrations in a database whose DDL is transactional.
type Ledger struct {
	All   []Migration
	Names Names
	// InTx runs fn in one transaction that excludes every other migration of the same store, after it has made sure
	// that table migrations exists, and commits it.
	InTx func(ctx context.Context, fn func(Executor) error) error
	// Read lists table migrations by version; Record inserts a row of it (version, name, sha256); Forget deletes one by
	// version.
	Read, Record, Forget string
	Micros               bool // table migrations keeps its time as microseconds since 1970
	// Concurrently runs statements outside of any transaction, again where they were cut off before; nil: in one, like all.
	// Several processes may call it at once.
	Concurrently func(ctx context.Context, statements []string) error
}

// Up applies what is pending, a transaction for each migration, so that it can be killed anywhere and run again.
func (l Ledger) Up(ctx context.Context) error {
	fresh, made := false, 0 // the version whose indexes were made concurrently
	for first := true; ; first = false {
		var todo []Migration
		alone := false
		err := l.InTx(ctx, func(tx Executor) error {
			applied, err := l.Applied(ctx, tx)
			if err != nil {
				return err
			}
			fresh = fresh || first && len(applied) == 0
			if todo, err = Pending(l.All, applied); err != nil || len(todo) == 0 {
				return err
			}
			m := todo[0]
			alone = m.Indexes != nil && l.Concurrently != nil && !fresh && made != m.Version
			if alone {
				return nil
			}
			if made != m.Version {
				if err := l.exec(ctx, tx, m.Up); err != nil {
					return fmt.Errorf("migration %s: %w", m.File(), err)
				}
			}
			_, err = tx.ExecContext(ctx, l.Record, m.Version, m.Name, m.SHA256)
			return err
		})
		if err == nil && alone {
			m := todo[0]
			if err = l.concurrently(ctx, m); err != nil {
				err = fmt.Errorf("migration %s: %w", m.File(), err)
			}
			made = m.Version
		}
		if err != nil || !alone && len(todo) <= 1 {
			return err
		}
	}
}

func (l Ledger) concurrently(ctx context.Context, m Migration) error {
	texts := make([]string, len(m.Indexes))
	for i, text := range m.Indexes {
		var err error
		if texts[i], err = l.Names.Expand(text, nil); err != nil {
			return err
		}
	}
	return l.Concurrently(ctx, texts)
}

// Down takes back the newest migration, unless data would be lost: then it says which table is not empty.
func (l Ledger) Down(ctx context.Context) error {
	return l.InTx(ctx, func(tx Executor) error {
		applied, err := l.Applied(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := Pending(l.All, applied); err != nil {
			return err
		}
		if len(applied) == 0 {
			return fmt.Errorf("no migration is applied")
		}
		if len(applied) > len(l.All) {
			return fmt.Errorf("migration %s is of a newer release, which takes it back", fileOf(l.All, applied[len(applied)-1]))
		}
		m := l.All[len(applied)-1]
		if m.Down == "" {
			return fmt.Errorf("migration %s cannot be taken back", m.File())
		}
		for _, name := range m.Empty {
			if full, err := l.holdsRows(ctx, tx, name); err != nil {
				return err
			} else if full {
				return fmt.Errorf("migration %s is not taken back: table %s is not empty and its rows would be lost", m.File(), name)
			}
		}
		if m.Version > 1 { // the first one takes table migrations with it
			if _, err := tx.ExecContext(ctx, l.Forget, m.Version); err != nil {
				return err
			}
		}
		if err := l.exec(ctx, tx, m.Down); err != nil {
			return fmt.Errorf("migration %s: %w", m.File(), err)
		}
		return nil
	})
}

func (l Ledger) holdsRows(ctx context.Context, tx Executor, table string) (bool, error) {
	rows, err := tx.QueryContext(ctx, "select 1 from "+l.Names.Table(table)+" limit 1")
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	return rows.Next(), rows.Err()
}

func (l Ledger) exec(ctx context.Context, tx Executor, text string) error {
	text, err := l.Names.Expand(text, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, text)
	return err
}

// Applied reads table migrations, which must exist.
func (l Ledger) Applied(ctx context.Context, tx Executor) ([]Applied, error) {
	rows, err := tx.QueryContext(ctx, l.Read)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []Applied
	for rows.Next() {
		var a Applied
		var at when
		if err := rows.Scan(&a.Version, &a.Name, &a.SHA256, at.dest(l.Micros), &a.By); err != nil {
			return nil, err
		}
		a.At = at.time()
		all = append(all, a)
	}
	return all, rows.Err()
}

// Script returns migrations from+1 to to (0: the newest) as one text for another tool: each as head, the migration, its
// row in table migrations, tail. The same input gives the same text.
func (l Ledger) Script(from, to int, head, tail string) (string, error) {
	if to == 0 {
		to = len(l.All)
	}
	if from < 0 || from > to || to > len(l.All) {
		return "", fmt.Errorf("from %d to %d: the versions are 0 to %d", from, to, len(l.All))
	}
	var b strings.Builder
	for _, m := range l.All[from:to] {
		record := literal(l.Record, strconv.Itoa(m.Version), "'"+m.Name+"'", "'"+m.SHA256+"'")
		if m.Indexes != nil && l.Concurrently != nil && from > 0 {
			fmt.Fprintf(&b, "-- %s\n-- Outside of a transaction: an index that is left invalid has to be dropped before this is run again.\n%s;\n%s%s;\n%s\n",
				m.File(), strings.Join(m.Indexes, ";\n"), head, record, tail)
			continue
		}
		fmt.Fprintf(&b, "-- %s\n%s%s%s;\n%s\n", m.File(), head, m.Up, record, tail)
	}
	return l.Names.Expand(b.String(), nil)
}

// literal puts values, which need no escaping, in the place of $1, $2 … or of each ?.
func literal(sql string, values ...string) string {
	for i, v := range values {
		if d := "$" + strconv.Itoa(i+1); strings.Contains(sql, d) {
			sql = strings.Replace(sql, d, v, 1)
		} else {
			sql = strings.Replace(sql, "?", v, 1)
		}
	}
	return sql
}
