package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/idempo/idempo/operator"
)

// apiRoutes are the same things as JSON; openapi.json describes them.
func (h *Handler) apiRoutes() {
	api := func(pattern string, serve func(*visit) error) {
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h.visit(w, r, true, serve) })
	}
	api("GET /api/v1/openapi.json", h.apiDocument)
	api("GET /api/v1/counts", h.apiCounts)
	api("GET /api/v1/keys", h.apiKeys)
	api("GET /api/v1/keys/{ref}", h.apiKey)
	api("POST /api/v1/keys/{ref}/{action}", h.apiAct)
	api("GET /api/v1/audit", h.apiAudit)
	api("GET /api/v1/contract", h.apiContract)
	api("/api/", func(*visit) error { return &fault{status: http.StatusNotFound} })
}

func (v *visit) json(status int, body any) error {
	v.w.Header().Set("Content-Type", "application/json")
	v.w.WriteHeader(status)
	_ = json.NewEncoder(v.w).Encode(body)
	return nil
}

func (h *Handler) apiDocument(v *visit) error {
	b, err := files.ReadFile("assets/openapi.json")
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	_, _ = v.w.Write(b)
	return nil
}

func (h *Handler) apiCounts(v *visit) error {
	q := v.r.URL.Query()
	stats, err := h.config.Operator.Stats(v.ctx(), operator.StatsParams{By: v.by, Tenant: q.Get("tenant"), Operation: q.Get("operation")})
	if err != nil {
		return err
	}
	return v.json(http.StatusOK, countsOf(stats))
}

// listJSON is a part of a list. next is the cursor of the next part; without it this was the last.
type listJSON[T any] struct {
	Schema int    `json:"schema"`
	Items  []T    `json:"items"`
	Next   string `json:"next,omitempty"`
}

func limitOf(q url.Values) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, badFilter("limit is a number from 1 to 1000")
	}
	return n, nil
}

func (h *Handler) apiKeys(v *visit) error {
	q := v.r.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	if f.params.Limit, err = limitOf(q); err != nil {
		return err
	}
	page, err := h.config.Operator.List(v.ctx(), operator.ListParams{By: v.by, Find: f.params, Stuck: f.Stuck})
	if err != nil {
		return err
	}
	out := listJSON[operator.Row]{Schema: 1, Items: []operator.Row{}, Next: page.Next}
	for _, r := range page.Records {
		out.Items = append(out.Items, operator.RowOf(r))
	}
	return v.json(http.StatusOK, out)
}

func (h *Handler) apiKey(v *visit) error {
	ref := v.r.PathValue("ref")
	if _, err := operator.ParseRef(ref); err != nil {
		return &operator.Error{Code: operator.CodeNotFound}
	}
	shown, err := v.show(v.ctx(), ref)
	if err != nil {
		return err
	}
	return v.json(http.StatusOK, operator.DetailOf(shown))
}

func (h *Handler) apiAudit(v *visit) error {
	q := v.r.URL.Query()
	_, params, err := auditFilter(q)
	if err != nil {
		return err
	}
	if params.Find.Limit, err = limitOf(q); err != nil {
		return err
	}
	params.By, params.Find.Newest = v.by, q.Get("newest") != "false"
	page, err := h.config.Operator.Audit(v.ctx(), params)
	if err != nil {
		return err
	}
	out := listJSON[operator.EntryRow]{Schema: 1, Items: []operator.EntryRow{}, Next: page.Next}
	for _, e := range page.Entries {
		out.Items = append(out.Items, operator.EntryRowOf(e))
	}
	return v.json(http.StatusOK, out)
}

// changedJSON is what an action came to.
type changedJSON struct {
	Schema int               `json:"schema"`
	Key    *operator.Row     `json:"key"` // null: it was removed
	Entry  operator.EntryRow `json:"audit"`
	DryRun bool              `json:"dry_run"`
}

// revealedJSON is a stored answer. The body is base64, since it may be anything.
type revealedJSON struct {
	Schema  int         `json:"schema"`
	KeyRef  string      `json:"key_ref"`
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Body    []byte      `json:"body"`
}

func (h *Handler) apiAct(v *visit) error {
	ref, action := strings.ToLower(v.r.PathValue("ref")), operator.Action(v.r.PathValue("action"))
	if _, err := operator.ParseRef(ref); err != nil {
		return &operator.Error{Code: operator.CodeNotFound}
	}
	var o order
	dec := json.NewDecoder(v.r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		if _, big := errors.AsType[*http.MaxBytesError](err); big {
			return badForm(err)
		}
		return badFilter("the body is not such an order: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badFilter("there is more than one value in the body")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx()), 3*patience)
	defer cancel()
	defer h.hub.wake()
	if action == operator.ActionReveal {
		return v.apiReveal(ctx, ref, o)
	}
	done, err := v.do(ctx, action, ref, o)
	if err != nil {
		return err
	}
	out := changedJSON{Schema: 1, Entry: operator.EntryRowOf(done.Entry), DryRun: o.DryRun}
	if done.Record.State != "" {
		row := operator.RowOf(done.Record)
		out.Key = &row
	}
	return v.json(http.StatusOK, out)
}

func (v *visit) apiReveal(ctx context.Context, ref string, o order) error {
	r, err := v.revealed(ctx, ref, o)
	if err != nil {
		return err
	}
	out := revealedJSON{Schema: 1, KeyRef: ref, Status: r.Result.Status, Headers: r.Result.Header, Body: r.Result.Body}
	if out.Headers == nil {
		out.Headers = [][2]string{}
	}
	return v.json(http.StatusOK, out)
}
