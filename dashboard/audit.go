package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// auditPage is a part of the audit, the newest first.
type auditPage struct {
	Ref, Tenant, Operation, Actor, Action, Outcome, Newer string

	Entries []operator.Entry
	Next    string
	First   string
	Export  string
	Command string
	Actions []operator.Action
	Now     time.Time
	Any     bool
}

// auditFilter reads the filters of a query.
func auditFilter(q url.Values) (auditPage, operator.ReadAuditParams, error) {
	p := auditPage{Ref: strings.TrimSpace(q.Get("key")), Tenant: q.Get("tenant"), Operation: q.Get("operation"), Actor: q.Get("actor"), Action: q.Get("action"),
		Outcome: q.Get("outcome"), Newer: q.Get("newer_than"), Actions: operator.Actions()}
	find := operator.AuditParams{Key: idempo.Key{Tenant: p.Tenant, Operation: p.Operation}, Actor: p.Actor, Action: operator.Action(p.Action), Outcome: p.Outcome,
		Newest: true, Limit: 50, After: q.Get("after")}
	age, err := parseAge(p.Newer)
	if err != nil {
		return p, operator.ReadAuditParams{}, badFilter("%v", err)
	}
	if age > 0 {
		find.Since = time.Now().Add(-age)
	}
	return p, operator.ReadAuditParams{Find: find, KeyOf: operator.Target{Ref: p.Ref}}, nil
}

// query is the filter as an address says it.
func (p auditPage) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"key": p.Ref, "tenant": p.Tenant, "operation": p.Operation, "actor": p.Actor, "action": p.Action,
		"outcome": p.Outcome, "newer_than": p.Newer} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

func (p auditPage) command() string {
	var b strings.Builder
	b.WriteString("idempo keys audit")
	if p.Ref != "" {
		b.WriteString(" " + shell(p.Ref))
	}
	for _, f := range [][2]string{{"tenant", p.Tenant}, {"operation", p.Operation}, {"by", p.Actor}, {"action", p.Action}, {"outcome", p.Outcome}, {"newer-than", p.Newer}} {
		if f[1] != "" {
			b.WriteString(" --" + f[0] + " " + shell(f[1]))
		}
	}
	return b.String() + " --newest"
}

func (h *Handler) audit(v *visit) error {
	ctx, cancel := context.WithTimeout(v.ctx(), patience)
	defer cancel()
	p, params, err := auditFilter(v.r.URL.Query())
	if err != nil {
		return err
	}
	params.By = v.by
	page, err := h.config.Operator.Audit(ctx, params)
	if err != nil {
		return err
	}
	p.Entries, p.Now, p.Any = page.Entries, time.Now(), len(p.query()) > 0
	base := h.config.Prefix + "/audit"
	if page.Next != "" {
		q := p.query()
		q.Set("after", page.Next)
		p.Next = link(base, q)
	}
	if params.Find.After != "" {
		p.First = link(base, p.query())
	}
	p.Export, p.Command = link(base+".ndjson", p.query()), p.command()
	v.render(http.StatusOK, "audit", pageData{Title: "Audit", Nav: "audit", Body: p})
	return nil
}
