package contract

import (
	"encoding/json"
	"fmt"
	"time"
)

// Report is what a check of a service observed: the JSON file that contract.report names.
type Report struct {
	Schema     int        `json:"schema"` // 1
	Target     string     `json:"target"`
	At         time.Time  `json:"at"`
	Operations []Observed `json:"operations"`
}

// Observed is what was seen of one operation.
type Observed struct {
	Operation string    `json:"operation"` // POST /v1/payments
	Level     string    `json:"level"`     // conformant, deviates …
	Verdicts  []Verdict `json:"verdicts,omitempty"`
}

// Verdict is the answer of one probe.
type Verdict struct {
	Probe    string `json:"probe"`
	Verdict  string `json:"verdict"` // PASS, FAIL, WARN, SKIP, INCONCLUSIVE
	Grade    string `json:"grade,omitempty"`
	Expected string `json:"expected,omitempty"`
	Observed string `json:"observed,omitempty"`
}

// ReadReport reads a report.
func ReadReport(b []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("contract: not a report: %w", err)
	}
	if r.Schema != 1 {
		return nil, fmt.Errorf("contract: a report of schema %d: 1 is known", r.Schema)
	}
	return &r, nil
}

// Of is what was seen of one endpoint, nil where it was not tried.
func (r *Report) Of(e Endpoint) *Observed {
	if r == nil {
		return nil
	}
	for i, o := range r.Operations {
		if o.Operation == e.Method+" "+e.Path {
			return &r.Operations[i]
		}
	}
	return nil
}

// Against are the verdicts that say something against what is declared.
func (o *Observed) Against() (out []Verdict) {
	if o == nil {
		return nil
	}
	for _, v := range o.Verdicts {
		if v.Verdict == "FAIL" || v.Verdict == "WARN" {
			out = append(out, v)
		}
	}
	return out
}
