package dashboard

import (
	"encoding/json"
	"net/http"

	"github.com/idempo/idempo/operator"
)

// exportKeys writes all keys of a filter, one JSON object a line, page by page: memory does not grow with the list.
func (h *Handler) exportKeys(v *visit) error {
	f, err := filterOf(v.r.URL.Query())
	if err != nil {
		return err
	}
	find := f.params
	find.Limit = 500
	return v.stream("keys.ndjson", func() ([]any, bool, error) {
		page, err := h.config.Operator.List(v.ctx(), operator.ListParams{By: v.by, Find: find, Stuck: f.Stuck})
		lines := make([]any, 0, len(page.Records))
		for _, r := range page.Records {
			lines = append(lines, operator.RowOf(r))
		}
		find.After = page.Next
		return lines, page.Next != "", err
	})
}

// exportAudit does the same for the audit.
func (h *Handler) exportAudit(v *visit) error {
	_, params, err := auditFilter(v.r.URL.Query())
	if err != nil {
		return err
	}
	params.By, params.Find.Limit = v.by, 500
	return v.stream("audit.ndjson", func() ([]any, bool, error) {
		page, err := h.config.Operator.Audit(v.ctx(), params)
		lines := make([]any, 0, len(page.Entries))
		for _, e := range page.Entries {
			lines = append(lines, operator.EntryRowOf(e))
		}
		params.Find.After = page.Next
		return lines, page.Next != "", err
	})
}

// stream writes what next returns until there is no more. An error after the first line cuts the answer, so that nobody takes a part
// for the whole.
func (v *visit) stream(name string, next func() (lines []any, more bool, err error)) error {
	started := false
	enc := json.NewEncoder(v.w)
	for more := true; more; {
		lines, again, err := next()
		if err != nil && !started {
			return err
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if !started {
			v.w.Header().Set("Content-Type", "application/x-ndjson")
			v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
			started = true
		}
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return nil // the reader went away
			}
		}
		_ = http.NewResponseController(v.w).Flush()
		more = again
	}
	return nil
}
