package idemhttp

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Problem is an answer made by idempo itself: an RFC 9457 document of type urn:idempo:problem:<code>.
// It never holds a raw key, a payload, SQL or a secret.
type Problem struct {
	// Type is "urn:idempo:problem:" and the code.
	Type string `json:"type"`
	// Title is the same for all problems of a code.
	Title string `json:"title"`
	// Status is the HTTP status the problem is sent with.
	Status int `json:"status"`
	// Detail is one sentence on what happened and what to do.
	Detail string `json:"detail"`
	// Code names the problem; clients branch on it.
	Code string `json:"code"`
	// Retryable says that an automatic retry is expected to help.
	Retryable bool `json:"retryable"`
	// SameKey says that the key is unspent or bound to this intent: keep it. False: this key cannot serve this request.
	SameKey bool `json:"same_key"`
	// KeyRef is the k_… reference that the CLI, logs and the dashboard show, or empty where no key was read.
	KeyRef string `json:"key_ref,omitempty"`
	// RetryAfter is the Retry-After header in whole seconds; 0 is none.
	RetryAfter int `json:"retry_after,omitempty"`
	// Resource is what the first request made, where it is known.
	Resource *ProblemResource `json:"resource,omitempty"`
	// OriginalStatus is the status of the first answer where its body is not kept.
	OriginalStatus int `json:"original_status,omitempty"`
	// ExpiredAt is when the kept answer expired.
	ExpiredAt *time.Time `json:"expired_at,omitempty"`
	// Mismatch names the parts of the request that differ, never their values.
	Mismatch *Mismatch `json:"mismatch,omitempty"`
}

// ProblemResource is the pointer to what the first request made, in a Problem.
type ProblemResource struct {
	// Type is the kind of the resource, "location" where the pointer is the Location of the answer.
	Type string `json:"type"`
	// ID identifies the resource within its type.
	ID string `json:"id"`
}

// Mismatch names what differs between a request and the one that its key stands for. It holds no value of either.
type Mismatch struct {
	// Parts are the parts of the request that differ: method, path, query, media_type, header:<name>, body.
	Parts []string `json:"parts"`
	// Changed are RFC 6901 pointers into the new request of members that have another value.
	Changed []string `json:"changed,omitempty"`
	// Added are pointers of members that the first request did not have.
	Added []string `json:"added,omitempty"`
	// Removed counts members that only the first request had.
	Removed int `json:"removed,omitempty"`
}

// names are the parts and members that differ.
func (m *Mismatch) names() []string {
	if m == nil {
		return nil
	}
	return slices.Concat(m.Parts, m.Changed, m.Added)
}

// NewProblem is the problem that a code stands for, with the defaults of its row: status, title, detail, retryable, same_key
// and, where a pause is advised, a Retry-After of 1 to 3 seconds at random, so that clients do not come back together.
// A code that is in no row is answered as outcome_unknown: what is not known may have happened.
func NewProblem(code string) Problem {
	row := problemRow(code)
	if row.status == 0 {
		code, row = "outcome_unknown", problemRow("outcome_unknown")
	}
	p := Problem{
		Type: "urn:idempo:problem:" + code, Title: row.title, Status: row.status, Detail: row.detail, Code: code,
		Retryable: row.retryable, SameKey: row.sameKey,
	}
	switch row.pause {
	case pauseSecond:
		p.RetryAfter = 1
	case pauseShort:
		p.RetryAfter = 1 + rand.IntN(3)
	}
	return p
}

// Write sends the problem with its status, Cache-Control: no-store and Retry-After. Headers that are already set, such as
// those of CORS, stay.
func (p Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // strings, numbers and times always marshal; a year beyond 9999 does not
		p.ExpiredAt = nil
		body, _ = json.Marshal(p)
	}
	p.write(w, "application/problem+json", append(body, '\n'))
}

func (p Problem) write(w http.ResponseWriter, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Encoding")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone; there is nobody to tell
}

type pause uint8

const (
	pauseNone   pause = iota // no Retry-After, or one that only the caller of NewProblem knows
	pauseSecond              // 1 s
	pauseShort               // 1 to 3 s
)

type problemText struct {
	status             int
	title, detail      string
	retryable, sameKey bool
	pause              pause
}

// problemRow is the table of answers, one row a code. The zero row means that there is no such code.
func problemRow(code string) problemText {
	const notValid = "Idempotency key not valid"
	switch code {
	case "key_missing":
		return problemText{400, "Idempotency key required", "This operation needs an idempotency key: send one that stands for this intent and repeat it on every retry.", false, false, pauseNone}
	case "key_empty":
		return problemText{400, notValid, "The idempotency key is empty.", false, false, pauseNone}
	case "key_malformed":
		return problemText{400, notValid, "The idempotency key is not well formed, so it was not read at all.", false, false, pauseNone}
	case "key_length":
		return problemText{400, notValid, "The idempotency key is too short or too long for this operation.", false, false, pauseNone}
	case "key_multiple":
		return problemText{400, notValid, "More than one idempotency key was sent; send exactly one.", false, false, pauseNone}
	case "key_not_issued":
		return problemText{400, "Key was not issued for this operation", "This key was not issued here or has lapsed, and nothing was done: fetch a new key, or open the form again, and submit once more.", false, false, pauseNone}
	case "upgrade_not_guarded":
		return problemText{400, "Keyed request cannot be upgraded", "A request with an idempotency key cannot switch protocols; send it without the key or without the upgrade.", false, false, pauseNone}
	case "malformed_request":
		return problemText{400, "Request not understood", "The request could be read in more than one way and was refused.", false, false, pauseNone}
	case "body_incomplete":
		return problemText{400, "Body ended early", "The request body ended before it was complete; nothing was done.", true, true, pauseNone}
	case "request_timeout":
		return problemText{408, "Request too slow", "The request did not arrive in time; nothing was done.", true, true, pauseNone}
	case "tenant_missing":
		return problemText{401, "Caller not known", "The request carries no identity that an idempotency key could belong to.", false, true, pauseNone}
	case "tenant_unavailable":
		return problemText{503, "Caller cannot be checked now", "Who is calling cannot be found out at the moment; nothing was done.", true, true, pauseShort}
	case "replay_forbidden":
		return problemText{403, "Not allowed to see this result", "The request was done before, and this caller may not see its result now.", false, true, pauseNone}
	case "no_route":
		return problemText{404, "No route", "There is no route for this method and path.", false, false, pauseNone}
	case "not_found":
		return problemText{404, "No record of this key", "No request with this key is known to this caller's account.", false, true, pauseNone}
	case "in_progress":
		return problemText{409, "First request still running", "The first request with this key is still running; ask again with the same key.", true, true, pauseSecond}
	case "already_done":
		return problemText{409, "This business identity is done under another key", "The same business identity was processed under another idempotency key; nothing was done now.", false, false, pauseNone}
	case "in_doubt":
		return problemText{409, "Outcome of the first request not known", "The first request with this key may or may not have taken effect; keep the key and do not start over with a new one.", false, true, pauseNone}
	case "expired":
		return problemText{410, "Done; result has expired", "The request with this key was done, and its answer is no longer kept.", false, false, pauseNone}
	case "result_not_kept":
		return problemText{410, "Done; full result was not kept", "The request with this key was done, and its full answer was not kept.", false, false, pauseNone}
	case "body_too_large":
		return problemText{413, "Body too large", "The request body is over the limit of this operation; nothing was done.", false, true, pauseNone}
	case "mismatch":
		return problemText{422, "Key was used for another request", "This key stands for another request; use a new key for a new intent.", false, false, pauseNone}
	case "quota_exceeded":
		return problemText{429, "Too many requests for this account", "The account is over one of its limits; nothing was done.", true, true, pauseSecond}
	default:
		return serverProblemRow(code)
	}
}

// serverProblemRow holds the rows of status 500 and above.
func serverProblemRow(code string) problemText {
	const tryAgain = "Try again"
	switch code {
	case "tx_aborted":
		return problemText{500, "Transaction failed; nothing was done", "The database gave up the transaction of this request; nothing was done.", true, true, pauseNone}
	case "response_too_large":
		return problemText{500, "Answer over the limit", "The answer was larger than this operation may buffer; its writes were undone.", false, true, pauseNone}
	case "nested":
		return problemText{500, "Guarded twice (nothing was done)", "This request is guarded twice in contradictory ways; nothing was done.", false, true, pauseNone}
	case "tx_ended":
		return problemText{500, "Handler ended the transaction itself", "The transaction of this request was ended before its result was kept; its effect may have happened.", false, true, pauseNone}
	case "result_unreadable":
		return problemText{500, "Stored result cannot be read", "The request with this key was done, and its stored answer cannot be read.", false, true, pauseNone}
	case "upstream_unreachable":
		return problemText{502, "Nothing was sent", "The service behind could not be reached; nothing was sent.", true, true, pauseSecond}
	case "upstream_resting":
		return problemText{503, "Upstream is failing; nothing was sent", "The service behind is failing and is given a pause; nothing was sent.", true, true, pauseNone}
	case "outcome_unknown":
		return problemText{503, "It may have happened", "Whether the request took effect is not known; keep the key and do not start over with a new one.", true, true, pauseShort}
	case "store_unavailable":
		return problemText{503, tryAgain, "The record of this key cannot be reached at the moment; try again with the same key.", true, true, pauseShort}
	case "record_unreadable":
		return problemText{503, tryAgain, "The record of this key was written by another version and cannot be read here; try again with the same key.", true, true, pauseShort}
	case "draining":
		return problemText{503, tryAgain, "This process is shutting down; try again with the same key.", true, true, pauseShort}
	case "handler_timeout":
		return problemText{504, "Too slow; nothing was done", "The request ran into its time limit and was undone.", true, true, pauseSecond}
	default:
		return problemText{}
	}
}
