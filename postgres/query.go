package postgres

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

//go:embed queries/*.sql migrations/*.sql
var files embed.FS

var argument = regexp.MustCompile(`\$[a-z][a-z0-9_]*!?`)

// query is one file of queries/, its named arguments numbered. In the files $column is the record's value of that
// column and any other $name one of the extra arguments. $time! is a time that is never relative to the server's clock.
type query struct {
	sql     string
	columns []int    // of each argument: the index of its column, -1 for an extra one
	names   []string // of each argument
}

// after marks a time argument that lies so many microseconds after the server's clock: times that a judgement made of
// "now" are computed by the server when it writes. No date reaches it.
const after = int64(1) << 60

// queries reads the query files for the names.
func queries(n sqlkit.Names) (map[string]query, error) {
	texts, err := n.Queries(files, "queries", nil)
	if err == nil {
		err = sqlkit.OutboxQueries(outboxWords(), n, texts)
	}
	if err != nil {
		return nil, err
	}
	out := make(map[string]query, len(texts))
	for name, text := range texts {
		out[name] = number(text)
	}
	return out, nil
}

// number turns named arguments into $1, $2 …, each with the cast that its type needs, so that every driver and protocol
// may send it untyped.
func number(text string) query {
	var q query
	columns := sqlkit.Columns()
	q.sql = argument.ReplaceAllStringFunc(text, func(m string) string {
		name, absolute := strings.CutSuffix(m[1:], "!")
		at := slices.Index(q.names, name)
		if at < 0 {
			at = len(q.names)
			q.names = append(q.names, name)
			q.columns = append(q.columns, slices.Index(columns, name))
		}
		n := "$" + strconv.Itoa(at+1)
		k := kind(name)
		if absolute {
			k = "clock"
		}
		switch k {
		case "clock": // a time as the server would have read it
			return "(timestamptz 'epoch' + " + n + "::bigint * interval '1 microsecond')"
		case "time":
			return fmt.Sprintf("(case when %s::bigint >= %d then t.now + (%s::bigint - %d) * interval '1 microsecond'"+
				" else timestamptz 'epoch' + %s::bigint * interval '1 microsecond' end)", n, after, n, after, n)
		case "tid":
			return n + "::text"
		default:
			return n + "::" + k
		}
	})
	return q
}

// kind is the type of a named argument.
func kind(name string) string {
	switch name {
	case "now", "old_changed_at", "since", "until", "message_at":
		return "clock"
	case "claimed_at", "started_at", "lease_until", "due_at", "created_at", "changed_at", "completed_at", "issued_until",
		"expires_at", "gone_at", "watch_at":
		return "time"
	case "idempotency_key", "request_hash", "request_detail", "token", "response_headers", "response_body", "body_sha256",
		"refs", "snapshot", "old_token", "old_refs", "after_key", "ref",
		"payload", "receipt_key", "source", "message_id", "message_type", "lane", "version", "headers", "body", "position", "failures", "wanted", "data":
		return "bytea"
	case "failing", "body_kept", "must", "begin", "archive", "newest", "holds", "due", "bodiless":
		return "boolean"
	case "attempt", "generation", "status_code", "body_size", "format", "lock", "start", "old_attempt", "batch", "limit", "after_id", "permille",
		"rev", "attempts", "delay", "after", "body_for", "keep_for", "times", "span", "begin_at",
		"at", "hold", "until_at", "due_from", "epoch", "external", "paused", "part", "fence", "starts", "seq", "head", "first", "pass", "low", "high", "rows", "bytes", "from_at", "to_at", "days":
		return "bigint"
	case "from", "to":
		return "tid"
	}
	return "text"
}

// with returns the statement for a record's values, in the order of sqlkit.Columns, and extra arguments: pairs of name
// and value. An argument that is neither is NULL.
func (q query) with(values []any, extra ...any) Statement {
	st := Statement{SQL: q.sql, Args: make([]any, len(q.names))}
	for i, name := range q.names {
		if c := q.columns[i]; c >= 0 && values != nil {
			st.Args[i] = values[c]
		}
		for e := 0; e < len(extra); e += 2 {
			if extra[e] == name {
				st.Args[i] = extra[e+1]
			}
		}
	}
	return st
}

// values returns rec's arguments. Times from judged on, the clock reading that rec was judged by, are sent as distances
// from the server's clock; a due time is the caller's own and stays.
func values(rec idempo.Record, judged time.Time) []any {
	due := rec.DueAt
	return sqlkit.Encoding{Time: func(t time.Time) any {
		if !judged.IsZero() && !t.Before(judged) && !t.Equal(due) {
			return after + t.Sub(judged).Microseconds()
		}
		return t.UnixMicro()
	}}.Values(rec)
}

// watch returns when somebody should look at rec, as an argument; nil: it is on the plain way from claim to completion.
func watch(rec idempo.Record, judged time.Time) any {
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		if !judged.IsZero() && !t.Before(judged) && !t.Equal(rec.DueAt) {
			return after + t.Sub(judged).Microseconds()
		}
		return t.UnixMicro()
	}
	switch rec.State {
	case idempo.StatePending:
		if !rec.DueAt.IsZero() {
			return at(rec.DueAt)
		}
		if rec.Attempt > 1 || !rec.CreatedAt.Equal(rec.ClaimedAt) { // nobody finds it by when it was created
			return at(rec.LeaseUntil)
		}
	case idempo.StateInDoubt:
		switch {
		case !rec.DueAt.IsZero():
			return at(rec.DueAt)
		case rec.OnCrash == idempo.OnCrashHold:
			return endless
		}
		return at(rec.ChangedAt)
	case idempo.StateIssued, idempo.StateFailed:
		return at(rec.ExpiresAt)
	case idempo.StateExpired:
		return at(rec.GoneAt)
	}
	return nil
}

// endless is a watch that nobody comes to by the clock: the year 9999. It keeps the record in the index of the watched.
const endless = int64(253_370_764_800_000_000)

// clock is a time argument as the server would have read it; zero: the server reads its clock.
func clock(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// digests lists binary digests as one argument that every driver can send.
func digests(ids []string) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%x", id)
	}
	return b.String()
}

// column is the place of a column in values.
func column(name string) int { return slices.Index(sqlkit.Columns(), name) }
