package dashboard

import (
	"net/http"

	"github.com/idempo/idempo/contract"
)

// contractPage is what callers are promised, and what was seen of it.
type contractPage struct {
	Keyed, Natural, Out []declaredEndpoint
	Consumers           []contract.Consumer
	Report              *contract.Report
	ReportProblem       string
}

type declaredEndpoint struct {
	contract.Endpoint
	Seen *contract.Observed
}

func (h *Handler) contract(v *visit) error {
	if h.config.Contract == nil {
		return &fault{status: http.StatusNotFound}
	}
	c, p := h.config.Contract(), contractPage{}
	if h.config.Report != nil {
		report, err := h.config.Report()
		if err != nil {
			h.config.Log.Warn("dashboard: contract.report", "error", err.Error())
			p.ReportProblem = "The report that contract.report names cannot be read; the log says why."
		}
		p.Report = report
	}
	for _, e := range c.Endpoints {
		one := declaredEndpoint{e, p.Report.Of(e)}
		switch e.Statement.Group() {
		case "keyed":
			p.Keyed = append(p.Keyed, one)
		case "natural":
			p.Natural = append(p.Natural, one)
		default:
			p.Out = append(p.Out, one)
		}
	}
	p.Consumers = c.Consumers
	v.render(http.StatusOK, "contract", pageData{Title: "Contract", Nav: "contract", Body: p})
	return nil
}

// document serves the contract as a file, in the form that its name says.
func (h *Handler) document(v *visit) error {
	if h.config.Contract == nil {
		return &fault{status: http.StatusNotFound}
	}
	c := h.config.Contract()
	var b []byte
	kind := "application/yaml"
	name := v.r.PathValue("file")
	switch name {
	case "openapi.yaml":
		b = contract.YAML(c.OpenAPI())
	case "asyncapi.yaml":
		b = contract.YAML(c.AsyncAPI())
	case "RETRIES.md":
		b, kind = c.Markdown(), "text/markdown; charset=utf-8"
	default:
		return &fault{status: http.StatusNotFound}
	}
	v.w.Header().Set("Content-Type", kind)
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = v.w.Write(b)
	return nil
}

func (h *Handler) apiContract(v *visit) error {
	if h.config.Contract == nil {
		return &fault{status: http.StatusNotFound}
	}
	v.w.Header().Set("Content-Type", "application/json")
	_, _ = v.w.Write(h.config.Contract().JSON())
	return nil
}
