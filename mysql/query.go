package mysql

import (
	"embed"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

//go:embed queries/*.sql migrations/*.sql
var files embed.FS

var argument = regexp.MustCompile(`\$[a-z_][a-z0-9_]*`)

// query is one file of queries/, cut at its named arguments: text[0] name[0] text[1] … In the files $column is the
// record's value of that column and any other $name one of the extra arguments.
type query struct{ text, names []string }

// statement is a query with its arguments. They stand in the text, as literals that no sql_mode, character set or time
// zone reads differently, so that a statement is one round trip with every driver; only what is long travels apart.
type statement struct {
	sql  string
	args []any
}

// raw is SQL that stands for itself.
type raw string

// maxLiteral is how long a value may be to stand in the text, where it takes twice its length.
const maxLiteral = 32 << 10

// clock reads the server's clock in microseconds since 1970, when the statement comes to the row and not when it began:
// it may have waited for a lock. UTC_TIMESTAMP is the beginning; the way from NOW to SYSDATE, both in the session's time
// zone, is the wait. More than a minute is a step of that zone and not a wait.
const clock = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))" +
	" + case when timestampdiff(microsecond, now(6), sysdate(6)) between 0 and 60000000" +
	" then timestampdiff(microsecond, now(6), sysdate(6)) else 0 end"

// micros reads a time column as microseconds since 1970: a driver would make of it what its own settings say.
func micros(column string) string { return "timestampdiff(microsecond, '1970-01-01', " + column + ")" }

// queries reads the query files for the names.
func queries(n sqlkit.Names) (map[string]query, error) {
	texts, err := n.Queries(files, "queries", micros)
	if err != nil {
		return nil, err
	}
	out := make(map[string]query, len(texts))
	for name, text := range texts {
		out[name] = cut(text)
	}
	return out, nil
}

// cut finds the arguments of text.
func cut(text string) query {
	var q query
	at := 0
	for _, m := range argument.FindAllStringIndex(text, -1) {
		q.text = append(q.text, text[at:m[0]])
		q.names = append(q.names, text[m[0]+1:m[1]])
		at = m[1]
	}
	q.text = append(q.text, text[at:])
	return q
}

// with returns the statement for a record, in whose place rec may be nil, and extra arguments: pairs of name and value.
// An argument that is neither is NULL; $clock is the server's clock unless it is given.
func (q query) with(rec *idempo.Record, extra ...any) statement {
	var values map[string]any
	if rec != nil {
		values = columns(*rec)
	}
	var b strings.Builder
	b.Grow(2048)
	var st statement
	for i, name := range q.names {
		b.WriteString(q.text[i])
		v, given := any(nil), false
		for e := 0; e < len(extra); e += 2 {
			if extra[e] == name {
				v, given = extra[e+1], true
			}
		}
		if !given {
			v = values[name]
			if name == "clock" {
				v = raw(clock)
			}
		}
		if long(v) {
			st.args = append(st.args, v)
			v = raw("?")
		}
		write(&b, v)
	}
	b.WriteString(q.text[len(q.text)-1])
	st.sql = b.String()
	return st
}

func long(v any) bool {
	switch v := v.(type) {
	case []byte:
		return len(v) > maxLiteral
	case string:
		return len(v) > maxLiteral
	}
	return false
}

// write appends v as a literal.
func write(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case raw:
		b.WriteString(string(v))
	case bool:
		if v {
			b.WriteString("1")
		} else {
			b.WriteString("0")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case time.Time:
		b.WriteString("timestamp'" + v.UTC().Format("2006-01-02 15:04:05.000000") + "'")
	case string:
		write(b, []byte(v))
	case []byte:
		if len(v) == 0 {
			b.WriteString("''")
			return
		}
		b.WriteString("x'")
		b.WriteString(hex.EncodeToString(v))
		b.WriteString("'")
	case []string: // what IN takes
		if len(v) == 0 {
			b.WriteString("null")
		}
		for i, s := range v {
			if i > 0 {
				b.WriteString(",")
			}
			write(b, s)
		}
	case []idempo.Key: // a condition
		for i, k := range v {
			if i > 0 {
				b.WriteString(" or ")
			}
			b.WriteString("tenant_id = ")
			write(b, k.Tenant)
			b.WriteString(" and operation = ")
			write(b, k.Operation)
			b.WriteString(" and idempotency_key = ")
			write(b, k.ID)
		}
	}
}

// columns returns rec's values by column.
func columns(rec idempo.Record) map[string]any {
	values := sqlkit.Encoding{Time: func(t time.Time) any { return t }}.Values(rec)
	out := make(map[string]any, len(values))
	for i, name := range sqlkit.Columns() {
		out[name] = values[i]
	}
	return out
}

// endless is a watch that nobody comes to by the clock.
const endless = raw("timestamp'9999-01-01 00:00:00'")

// watch returns when somebody should look at rec; nil: when it was said before. old is the state it comes from, "" for a
// new row.
func watch(rec idempo.Record, old idempo.State) any {
	at := func(t time.Time) any {
		if t.IsZero() {
			return endless
		}
		return t
	}
	switch rec.State {
	case idempo.StatePending:
		if rec.DueAt.After(rec.LeaseUntil) {
			return at(rec.DueAt)
		}
		return at(rec.LeaseUntil)
	case idempo.StateInDoubt:
		switch {
		case rec.OnCrash == idempo.OnCrashHold:
			return endless
		case !rec.DueAt.IsZero():
			return at(rec.DueAt)
		}
		return at(rec.ChangedAt)
	case idempo.StateCompleted:
		if old == idempo.StatePending {
			return nil // the sweeper sets it
		}
		return at(rec.ExpiresAt)
	case idempo.StateIssued, idempo.StateFailed:
		return at(rec.ExpiresAt)
	}
	return at(rec.GoneAt)
}
