package dashboard_test

import (
	"context"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// down is a store that does not answer, and says a password in its error.
type down struct{ *memstore.Store }

func (down) err() error {
	return &idempo.Error{Op: "list", Code: "unavailable", Hint: "dial postgres://pay:hunter2@db", Err: idempo.ErrUnavailable}
}

func (d down) List(context.Context, operator.FindParams) (operator.Page, error) {
	return operator.Page{}, d.err()
}

func (d down) Count(context.Context, operator.CountParams) (operator.Stats, error) {
	return operator.Stats{}, d.err()
}

func (d down) Audit(context.Context, operator.AuditParams) (operator.AuditPage, error) {
	return operator.AuditPage{}, d.err()
}

// many is a store with more keys than anybody counts.
type many struct{ *memstore.Store }

func (many) Count(context.Context, operator.CountParams) (operator.Stats, error) {
	return operator.Stats{Counts: []operator.Count{{State: idempo.StateCompleted, Records: 1_230_000, Estimate: true}, {State: idempo.StateInDoubt, Records: 3}}}, nil
}
