package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// Audit implements operator.Auditor on the reading connections.
func (s *Store) Audit(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error) {
	p, err := p.WithDefaults()
	if err != nil {
		return operator.AuditPage{}, &idempo.Error{Op: "audit", Code: "invalid", Hint: err.Error(), Err: err}
	}
	from, _ := p.From()
	var lower, upper any
	if ref := p.Ref; ref != nil || p.Key.ID != "" {
		if ref == nil {
			ref = []byte(p.Key.ID)
		}
		lower, upper = ref, append(bytes.Clone(ref), bytes.Repeat([]byte{0xff}, 33)...)
	}
	name, args := "audit", []any{from, p.Key.Tenant, p.Key.Operation, lower, upper, p.Actor, string(p.Action), p.Outcome,
		sinceArg(p.Since), sinceArg(p.Until), tenantsArg(p.Tenants), p.Limit + 1}
	switch {
	case lower != nil:
		name, args = "audit_key", append(args, p.Newest)
	case p.Newest:
		name = "audit_newest"
	}
	rows, err := s.readRows(ctx, name, args...)
	if err != nil {
		return operator.AuditPage{}, failure("audit", idempo.Key{}, err, false)
	}
	entries, err := scanAudit(rows)
	if err != nil {
		return operator.AuditPage{}, failure("audit", idempo.Key{}, err, false)
	}
	return p.Page(entries), nil
}

// scanAudit reads entries and closes rows.
func scanAudit(rows *sql.Rows) (out []operator.Entry, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e operator.Entry
		var at int64
		var role, action, before, after string
		var tenant, operation, id []byte
		if err := rows.Scan(&e.ID, &at, &e.Actor, &role, &e.Channel, &action, &e.Outcome, &e.Code, &tenant, &operation, &id, &e.Attempt,
			&before, &after, &e.Reason, &e.Evidence); err != nil {
			return nil, err
		}
		e.At, e.Role, e.Action = time.UnixMicro(at).UTC(), operator.Role(role), operator.Action(action)
		e.Before, e.After = idempo.State(before), idempo.State(after)
		e.Key = idempo.Key{Tenant: string(tenant), Operation: string(operation), ID: string(id)}
		out = append(out, e)
	}
	return out, rows.Err()
}

func sinceArg(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// tenantsArg lists tenants in hexadecimal, each between blanks; nil for all.
func tenantsArg(tenants []string) any {
	if tenants == nil {
		return nil
	}
	b := strings.Builder{}
	b.WriteByte(' ')
	for _, t := range tenants {
		fmt.Fprintf(&b, "%X ", t)
	}
	return b.String()
}
