package dashboard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// fault is a refusal of the pages themselves.
type fault struct {
	status     int
	code       string
	retryAfter time.Duration
}

func (f *fault) Error() string { return http.StatusText(f.status) }

// failure is what a person or a program is told of an error: what it is, what is known, and what to do next.
type failure struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Of a key that has moved.
	KeyRef  string `json:"key_ref,omitempty"`
	State   string `json:"state,omitempty"`
	Attempt int64  `json:"attempt,omitempty"`
	By      string `json:"by,omitempty"`

	Trace string `json:"instance,omitempty"` // of what is in the log
}

// failureOf is the one table from errors to answers.
func failureOf(err error) failure {
	if e, ok := errors.AsType[*operator.Error](err); ok {
		return refusal(e)
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return faulty(f)
	}
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		switch e.Code {
		case "result_unreadable":
			return failure{Status: http.StatusConflict, Code: e.Code, Title: "The stored answer cannot be opened here",
				Detail: "It is encrypted, and the key is not at hand.", Hint: "Name the key in security.encryption_keys, or read it where the key is."}
		case "schema_old", "schema_new":
			return failure{Status: http.StatusServiceUnavailable, Code: e.Code, Title: "The store is being migrated",
				Detail: "Its tables are not those of this release.", Hint: "idempo migrate status says which; idempo migrate up brings them up."}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return failure{Status: http.StatusServiceUnavailable, Code: "store_unavailable", Title: "The store did not answer in time", Hint: "Narrow the filter, or try again."}
	}
	if _, ok := errors.AsType[*idempo.Error](err); ok {
		return failure{Status: http.StatusServiceUnavailable, Code: "store_unavailable", Title: "The store does not answer",
			Detail: "Nothing was changed as far as is known.", Hint: "idempo doctor says what it finds. This page works again as soon as the store does."}
	}
	return failure{Status: http.StatusInternalServerError, Code: "internal", Title: "Something went wrong here", Detail: "What it was is in the log."}
}

func refusal(e *operator.Error) failure {
	f := failure{Code: e.Code, KeyRef: e.KeyRef, State: string(e.State), Attempt: e.Attempt, By: e.By, Detail: e.Hint}
	switch e.Code {
	case operator.CodeNotFound:
		return failure{Status: http.StatusNotFound, Code: e.Code, Title: "No such key", Detail: "It never was, is gone, or is not yours to see.", Hint: "Search for another one."}
	case operator.CodeMoved:
		f.Status, f.Title, f.Detail = http.StatusConflict, "The key has moved", "Nothing was done: it is no longer what you decided on."
		f.Hint = "Look at it again before you decide."
	case operator.CodeWrongState:
		f.Status, f.Title, f.Hint = http.StatusConflict, "That cannot be done to a key in this state", "Nothing was done."
	case operator.CodeConfirmNeeded:
		f.Status, f.Title, f.Hint = http.StatusUnprocessableEntity, "That is severe and was not confirmed", "Nothing was done. Type the reference of the key to confirm."
	case operator.CodeUnsupported:
		f.Status, f.Title = http.StatusNotImplemented, "Not with this store"
	case operator.CodeUnreadable:
		f.Status, f.Title = http.StatusConflict, "A newer release wrote this record"
	default:
		f.Status, f.Title, f.Hint = http.StatusUnprocessableEntity, "Something is missing", "Nothing was done. Go back and complete the form."
	}
	return f
}

func faulty(f *fault) failure {
	switch f.status {
	case http.StatusNotFound:
		return failure{Status: f.status, Code: "not_found", Title: "No such page", Hint: "The navigation leads to all there is."}
	case http.StatusUnauthorized:
		return failure{Status: f.status, Code: "unauthorized", Title: "Log in first"}
	case http.StatusTooManyRequests:
		return failure{Status: f.status, Code: "busy", Title: "Too many", Hint: "Wait a minute, then try again."}
	case http.StatusMisdirectedRequest:
		return failure{Status: f.status, Code: "misdirected_host", Title: "This is not reached under that name",
			Hint: "Use the address of the banner, or add the name to the allowed hosts."}
	case http.StatusForbidden:
		out := failure{Status: f.status, Code: "forbidden", Title: "Not allowed", Detail: "You are logged in, and have no role here."}
		switch f.code {
		case "cross_origin":
			out.Code, out.Detail = f.code, "The form came from another site. Nothing was done."
		case "form_token":
			out.Code, out.Title, out.Detail = f.code, "This form is out of date", "It was made for another session. Nothing was done."
			out.Hint = "Open the page again and repeat it."
		}
		return out
	case http.StatusMethodNotAllowed:
		return failure{Status: f.status, Code: "method_not_allowed", Title: "Not that way"}
	case http.StatusRequestEntityTooLarge:
		return failure{Status: f.status, Code: "invalid", Title: "Too large", Detail: "Nothing was done."}
	}
	return failure{Status: f.status, Code: "invalid", Title: "That cannot be read", Detail: "Nothing was done.", Hint: "Go back and look at the form or the address."}
}

// fail answers with an error: a page, or a problem document.
func (h *Handler) fail(v *visit, err error) {
	f := failureOf(err)
	if f.Code == operator.CodeInvalid && v.r.Method != http.MethodPost && f.Status == http.StatusUnprocessableEntity {
		f.Title, f.Hint = "That cannot be asked", "Correct it, or take the filter away."
	}
	if d, ok := errors.AsType[*fault](err); ok && d.retryAfter > 0 {
		v.w.Header().Set("Retry-After", strconv.Itoa(int((d.retryAfter+time.Second-1)/time.Second)))
	}
	if f.Status >= http.StatusInternalServerError && v.r.Context().Err() == nil {
		f.Trace = rand.Text()[:10]
		h.config.Log.Error("dashboard", "path", v.r.URL.Path, "instance", f.Trace, "error", err.Error())
	}
	if v.api {
		v.problem(f)
		return
	}
	v.render(f.Status, "failure", pageData{Title: f.Title, Failure: &f, Bare: v.by.Role == ""})
}

func (v *visit) problem(f failure) {
	v.w.Header().Set("Content-Type", "application/problem+json")
	v.w.WriteHeader(f.Status)
	type problem struct {
		Type   string `json:"type"`
		Schema int    `json:"schema"`
		failure
	}
	_ = json.NewEncoder(v.w).Encode(problem{"urn:idempo:problem:" + f.Code, 1, f})
}
