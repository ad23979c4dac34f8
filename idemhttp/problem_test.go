package idemhttp

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// problemCodes lists every row of the table; the golden file is what callers see.
var problemCodes = []string{
	"key_missing", "key_empty", "key_malformed", "key_length", "key_multiple", "key_not_issued", "upgrade_not_guarded",
	"malformed_request", "body_incomplete", "request_timeout", "tenant_missing", "tenant_unavailable", "replay_forbidden",
	"no_route", "not_found", "in_progress", "already_done", "in_doubt", "expired", "result_not_kept", "body_too_large",
	"mismatch", "quota_exceeded", "tx_aborted", "response_too_large", "nested", "tx_ended", "result_unreadable",
	"upstream_unreachable", "upstream_resting", "outcome_unknown", "store_unavailable", "record_unreadable", "draining",
	"handler_timeout",
}

func TestProblemTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, code := range problemCodes {
		p := NewProblem(code)
		fmt.Fprintf(&b, "%s | %d | %s | retryable %v | same_key %v | pause %v\n", p.Code, p.Status, p.Title, p.Retryable,
			p.SameKey, p.RetryAfter > 0)
		if p.Type != "urn:idempo:problem:"+code || p.Detail == "" {
			t.Errorf("%s: type %q, detail %q", code, p.Type, p.Detail)
		}
		if p.RetryAfter < 0 || p.RetryAfter > 3 {
			t.Errorf("%s: Retry-After %d, want at most 3", code, p.RetryAfter)
		}
	}
	golden := filepath.Join("testdata", "problems.golden")
	want, err := os.ReadFile(golden)
	if err != nil || b.String() != string(want) {
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("problems differ from %s (UPDATE=1 rewrites it):\n%s", golden, b.String())
	}
}

func TestProblemOfUnknownCodeMayHaveHappened(t *testing.T) {
	t.Parallel()
	if p := NewProblem("no such code"); p.Code != "outcome_unknown" || p.Status != 503 {
		t.Errorf("got %s %d, want outcome_unknown 503", p.Code, p.Status)
	}
}

func TestProblemWrite(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	w.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
	w.Header().Set("Content-Encoding", "gzip")
	p := NewProblem("in_progress")
	p.RetryAfter, p.KeyRef = 7, "k_abc"
	p.Write(w)
	h := w.Result().Header
	for name, want := range map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "7",
		"Access-Control-Allow-Origin": "https://shop.example", "Content-Encoding": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc["code"] != "in_progress" || doc["retry_after"] != 7.0 || doc["key_ref"] != "k_abc" || doc["status"] != 409.0 {
		t.Errorf("document: %v", doc)
	}
	if _, ok := doc["mismatch"]; ok {
		t.Errorf("a member that does not apply is there: %v", doc)
	}
}
