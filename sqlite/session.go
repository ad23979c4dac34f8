package sqlite

import (
	"bytes"
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// session is the store's statements in one transaction that holds the write lock. Contexts of callers do not reach
// them: an interrupted write would undo the whole transaction.
type session struct {
	s      *Store
	w      *wire   // the writing connection; nil: tx is the caller's own
	tx     *sql.Tx // lent to the work, or the caller's own; nil: only the store's statements run
	cancel func()  // of the context that tx was begun with; nil: none
	over   bool

	// While a work runs that shares the transaction with others:
	shared bool // there are others before it
	marked bool // its savepoint is set
	wrote  int  // statements that write
}

// errUnmarked is a mistake in this package: it would let a work fail by half.
var errUnmarked = errors.New("a second write without a savepoint")

// several is called before a work writes by more than one statement. A single one is undone by SQLite itself.
func (x *session) several() error {
	if !x.shared || x.marked {
		return nil
	}
	x.marked = true
	return x.w.word("SAVEPOINT work")
}

func (x *session) exec(name string, args ...any) (n int64, err error) {
	if x.wrote++; x.shared && !x.marked && x.wrote > 1 {
		return 0, errUnmarked
	}
	var res sql.Result
	if text := x.s.queries[name].text; x.w != nil {
		res, err = x.w.exec(name, text, args...)
	} else {
		res, err = x.tx.ExecContext(background{}, text, args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (x *session) query(name string, args ...any) (*sql.Rows, error) {
	if text := x.s.queries[name].text; x.w != nil {
		return x.w.query(name, text, args...)
	} else {
		return x.tx.QueryContext(background{}, text, args...)
	}
}

// find returns the records under names, each once, in their order. More than one is met where several digests of one
// claim were taken by different records.
func (x *session) find(k idempo.Key, names []string) ([]idempo.Record, error) {
	return find("find", k, names, x.query)
}

func find(name string, k idempo.Key, names []string, query func(name string, args ...any) (*sql.Rows, error)) ([]idempo.Record, error) {
	var out []idempo.Record
	for _, id := range names {
		args := keyArgs(k, id)
		rows, err := query(name, args[0], args[1], args[0], args[1], args[2], args[2])
		if err != nil {
			return nil, err
		}
		found, err := scan(rows, false)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			if !slices.ContainsFunc(out, func(o idempo.Record) bool { return o.Key.ID == r.Key.ID }) {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// scan reads records and closes rows. Where they are listed, one that cannot be read is no error.
func scan(rows *sql.Rows, listed bool) (out []idempo.Record, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		var body []byte
		if err := rows.Scan(&text, blob{&body}); err != nil {
			return nil, err
		}
		var row sqlkit.Row
		if err := row.Unpack(text, body); err != nil {
			return nil, err
		}
		r, err := row.Record()
		switch {
		case err != nil && !listed:
			return nil, err
		case err != nil:
			r = row.Listed()
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// blob scans a BLOB and tells an empty one from none: modernc hands out a nil slice for both.
type blob struct{ p *[]byte }

// Scan implements sql.Scanner.
func (b blob) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*b.p = nil
	case []byte:
		*b.p = append([]byte{}, v...)
	case string:
		*b.p = []byte(v)
	default:
		return fmt.Errorf("a %T where bytes belong", v)
	}
	return nil
}

// put makes rec the record under names in the place of base, the records found there. rec's own row is updated. Another
// one leaves: it is over, or it is the same key under another digest, and then its digests become rec's.
func (x *session) put(base []idempo.Record, rec idempo.Record, names []string) error {
	if len(base) > 0 || len(names) > 1 {
		if err := x.several(); err != nil {
			return err
		}
	}
	var old *idempo.Record
	for i, b := range base {
		if b.Key.ID == rec.Key.ID {
			old = &base[i]
			continue
		}
		if _, live := b.Effective(rec.ChangedAt); live {
			more, err := x.aliases(b.Key)
			if err != nil {
				return err
			}
			names = append(slices.Clip(names), more...)
		}
		if err := x.remove(b.Key); err != nil {
			return err
		}
	}
	if old == nil {
		if won, err := x.insert(rec); err != nil || !won {
			return cmp.Or(err, error(&idempo.Error{Op: "write", Code: "tx_conflict", KeyRef: rec.Ref()}))
		}
	} else {
		if _, live := old.Effective(rec.ChangedAt); !live { // what is gone leaves with all its digests
			if _, err := x.exec("remove_aliases", keyArgs(old.Key, old.Key.ID)...); err != nil {
				return err
			}
		}
		if err := x.update(*old, rec); err != nil {
			return err
		}
	}
	for _, id := range names {
		if id == rec.Key.ID {
			continue
		}
		if _, err := x.exec("alias", append(keyArgs(rec.Key, id), []byte(rec.Key.ID))...); err != nil {
			return err
		}
	}
	return nil
}

// aliases returns the digests that stand for the record k besides its own.
func (x *session) aliases(k idempo.Key) (out []string, err error) {
	rows, err := x.query("aliases", keyArgs(k, k.ID)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, string(id))
	}
	return out, rows.Err()
}

// insert reports whether rec was written; false: there is a row under its key.
func (x *session) insert(rec idempo.Record) (bool, error) {
	n, err := x.exec("insert", x.values(rec)...)
	return n == 1, err
}

func (x *session) update(old, rec idempo.Record) error {
	if old.Attempt > 0 && rec.Attempt > old.Attempt {
		if err := x.several(); err != nil {
			return err
		}
		if _, err := x.exec("archive", append(keyArgs(old.Key, old.Key.ID), rec.ChangedAt.UnixMicro())...); err != nil {
			return err
		}
	}
	var token any
	if !old.Token.IsZero() {
		token = bytes.Clone(old.Token[:])
	}
	v := x.values(rec)
	n, err := x.exec("update", append(v[4:], v[0], v[1], v[2], old.Attempt, string(old.State), token)...)
	if err == nil && n != 1 {
		err = &idempo.Error{Op: "write", Code: "lease_lost", KeyRef: rec.Ref(), Attempt: old.Attempt}
	}
	return err
}

// remove takes a record away, with its aliases and old attempts.
func (x *session) remove(k idempo.Key) error {
	if err := x.several(); err != nil {
		return err
	}
	for _, name := range []string{"remove", "remove_aliases", "remove_attempts"} {
		if _, err := x.exec(name, keyArgs(k, k.ID)...); err != nil {
			return err
		}
	}
	return nil
}

func (x *session) values(r idempo.Record) []any {
	return sqlkit.Encoding{Binary: true}.Values(r)
}

func keyArgs(k idempo.Key, id string) []any {
	return []any{[]byte(k.Tenant), []byte(k.Operation), []byte(id)}
}

// syncClock looks at the file's clock where it was not looked at for a while, and carries it on.
func (x *session) syncClock() error {
	if !x.s.clock.stale() {
		return nil
	}
	rows, err := x.query("meta", "clock")
	if err != nil {
		return err
	}
	a, err := readAnchor(rows)
	if err != nil {
		return err
	}
	_, err = x.exec("set_meta", "clock", x.s.clock.follow(a).text())
	return err
}

// readAnchor reads the row `clock` of table meta and closes rows.
func readAnchor(rows *sql.Rows) (anchor, error) {
	var text string
	var err error
	if rows.Next() {
		err = rows.Scan(&text)
	}
	return parseAnchor(text), errors.Join(err, rows.Err(), rows.Close())
}

// text is the anchor as table meta keeps it: shown, wall, time since boot, all in microseconds, and the boot's id.
func (a anchor) text() string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return strings.Join([]string{n(a.shown.UnixMicro()), n(a.wall.UnixMicro()), n(a.up), a.boot}, " ")
}

// parseAnchor reads what text wrote; anything else is no anchor.
func parseAnchor(text string) anchor {
	f := strings.SplitN(text, " ", 4)
	if len(f) != 4 {
		return anchor{}
	}
	var v [3]int64
	for i := range v {
		var err error
		if v[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
			return anchor{}
		}
	}
	return anchor{shown: time.UnixMicro(v[0]).UTC(), wall: time.UnixMicro(v[1]).UTC(), up: v[2], boot: f[3], stored: true}
}
