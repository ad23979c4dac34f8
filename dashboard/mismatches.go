package dashboard

import (
	"net/http"

	"github.com/idempo/idempo/operator"
)

// mismatchPage shows calls that were refused because their key stands for another request.
type mismatchPage struct {
	Meter   *metered // nil: nothing is counted here
	Counts  []operator.MeasuredOperation
	Total   int64
	Latest  []operator.Mismatch // of this process
	Limited bool                // who looks sees only its tenants, and no sums
	Now     any
}

func (h *Handler) mismatches(v *visit) error {
	p := mismatchPage{Limited: v.by.Tenants != nil}
	if h.config.Meter != nil {
		for _, m := range h.config.Meter.Mismatches() {
			if v.by.Sees(m.Tenant) {
				p.Latest = append(p.Latest, m)
			}
		}
	}
	if p.Meter = h.meter(v); p.Meter != nil {
		for _, o := range p.Meter.Operations {
			if o.Mismatch > 0 {
				p.Counts = append(p.Counts, o)
				p.Total += o.Mismatch
			}
		}
		p.Now = p.Meter.Now
	}
	v.render(http.StatusOK, "mismatches", pageData{Title: "Mismatches", Nav: "mismatches", Body: p})
	return nil
}
