package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// answer sends what the engine's verdict stands for. Nothing of the handler's answer has left before, unless it streamed.
func (x *exchange) answer(begun idempo.Begun, err error) {
	switch {
	case err != nil:
		x.failed(begun, err)
	case begun.Verdict == idempo.VerdictReplay:
		x.replay(begun.Record)
	default:
		x.deliver("executed", begun.Record)
	}
}

// deliver sends the handler's own answer.
func (x *exchange) deliver(status string, rec idempo.Record) {
	x.own.status = status
	if status == "executed" {
		x.own.expires, x.own.next = rec.ExpiresAt, x.nextKey(x.print.recipe)
	}
	x.rec.deliver(&x.own)
}

// failed answers where no result was kept, or it is not known whether it was.
func (x *exchange) failed(begun idempo.Begun, err error) {
	e, _ := errors.AsType[*idempo.Error](err)
	if x.rec.streaming {
		return // the client has what there was; the record says the rest
	}
	if !x.ran {
		x.notRun(begun, e, err)
		return
	}
	code := ""
	if e != nil {
		code = e.Code
	}
	switch {
	case code == "tx_ended", code == "tx_aborted":
		x.g.m.fault("the transaction of a handler did not commit as it should", "operation", x.g.op.Name, "error_code", code)
		x.refuseFor(err)
	case errors.Is(err, errReleased), errors.Is(err, errUndone), errors.Is(err, errAnswerCut):
		x.deliver(undone(err), idempo.Record{})
	case errors.Is(err, errAnswerTooBig):
		x.refuse("response_too_large")
	case errors.Is(err, context.DeadlineExceeded) && !idempo.MayHaveHappened(err):
		x.refuse("handler_timeout")
	case errors.Is(err, context.DeadlineExceeded):
		p := x.problem("outcome_unknown", e)
		p.Status = http.StatusGatewayTimeout
		if p.Retryable = e != nil && e.RetryAfter > 0; !p.Retryable { // nobody will find out by itself
			p.RetryAfter = 0
		}
		x.send(p)
	case code == "unavailable" && !e.Unknown && x.g.op.Guard == idempo.GuardAtomic: // rolled back, and tried often enough
		x.refuse("store_unavailable")
	default:
		x.g.m.fault("it is not known whether a result was kept", "operation", x.g.op.Name, "error_code", code)
		x.send(x.problem("outcome_unknown", e))
	}
}

// undone is the word for an attempt whose answer is not kept: a transaction took it back, or a mark of the operation says
// that it never began; otherwise nobody knows.
func undone(err error) string {
	if idempo.MayHaveHappened(err) {
		return "in_doubt"
	}
	return "released"
}

// notRun answers where the handler was not called.
func (x *exchange) notRun(begun idempo.Begun, e *idempo.Error, err error) {
	if begun.Identity && begun.Verdict == idempo.VerdictReplay {
		p := x.problem("already_done", e)
		p.Resource = resourceOf(begun.Record.Result.Resource)
		x.send(p)
		return
	}
	if e == nil && x.r.Context().Err() != nil {
		x.refuse("store_unavailable") // the client, or whoever bounds its patience, is gone; nothing was begun
		return
	}
	if e == nil {
		x.refuseFor(err)
		return
	}
	switch e.Code {
	case "mismatch":
		p := x.problem("mismatch", e)
		if x.g.rules.MismatchStatus != 0 {
			p.Status = x.g.rules.MismatchStatus
		}
		if x.g.rules.MismatchDetail != DetailNone {
			p.Mismatch = x.g.prints.mismatch(begun.Record, x.r, &x.payload, x.key.Tenant)
			x.g.m.engine.Report(x.r.Context(), idempo.Event{Kind: "differs", Operation: x.g.op.Name, Surface: "http", KeyRef: p.KeyRef, Members: p.Mismatch.names()})
		}
		x.send(p)
	case "in_doubt":
		p := x.problem("in_doubt", e)
		p.Retryable = e.RetryAfter > 0
		x.send(p)
	case "expired":
		p := x.problem("expired", e)
		if at := begun.Record.ExpiresAt; !at.IsZero() {
			at = at.UTC()
			p.ExpiredAt = &at
		}
		p.Resource = resourceOf(e.Resource)
		x.locate(e.Resource)
		x.send(p)
	case "unavailable":
		x.storeDown(e)
	default:
		x.refuseFor(err)
	}
}

// storeDown refuses, or runs the handler unguarded where the rules say so.
func (x *exchange) storeDown(e *idempo.Error) {
	if x.g.rules.OnStoreDown != StoreDownRun || x.r.Context().Err() != nil {
		x.g.m.fault("the store cannot be reached", "operation", x.g.op.Name, "error_code", e.Code)
		x.refuse("store_unavailable")
		return
	}
	x.g.m.passed(x.r.Context(), x.g.op.Name, "fail_open")
	x.g.m.warn("the store cannot be reached; the request runs unguarded", "operation", x.g.op.Name)
	x.w.Header().Set(headerStatus, "unguarded")
	x.g.next.ServeHTTP(x.w, x.buffered())
}

// locate sets Location where that is the pointer to what the first request made.
func (x *exchange) locate(res idempo.Resource) {
	if res.Type == "location" && writable("Location", res.ID) {
		x.w.Header().Set("Location", res.ID)
	}
}

func resourceOf(res idempo.Resource) *ProblemResource {
	if res.IsZero() {
		return nil
	}
	return &ProblemResource{Type: res.Type, ID: res.ID}
}

// refuse answers with the problem of a code.
func (x *exchange) refuse(code string) { x.send(x.problem(code, nil)) }

// refuseFor answers with the problem that an error stands for.
func (x *exchange) refuseFor(err error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		p := x.problem(r.code, nil)
		p.Detail = r.detail
		x.send(p)
		return
	}
	e, ok := errors.AsType[*idempo.Error](err)
	if !ok {
		x.g.m.fault("a request could not be judged", "operation", x.g.op.Name, "error", err.Error())
		x.refuse("store_unavailable")
		return
	}
	code := problemOf(e)
	if code == "record_unreadable" || code == "result_unreadable" || code == "nested" {
		x.g.m.fault("a record or a context stands in the way of a request", "operation", x.g.op.Name, "error_code", e.Code, "key_ref", e.KeyRef, "hint", e.Hint)
	}
	x.send(x.problem(code, e))
}

// problemOf is the code of the problem that an engine's error stands for, where the handler did not run.
func problemOf(e *idempo.Error) string {
	switch e.Code {
	case "mismatch", "in_progress", "in_doubt", "expired", "quota_exceeded", "record_unreadable", "result_unreadable", "tx_ended", "tx_aborted", "not_found":
		return e.Code
	case "not_issued":
		return "key_not_issued"
	case "nested", "misuse":
		return "nested"
	case "invalid":
		return "malformed_request"
	case "unavailable", "tx_conflict":
		return "store_unavailable"
	default:
		return "outcome_unknown"
	}
}

// problem is the problem of a code with what the engine knows about the key.
func (x *exchange) problem(code string, e *idempo.Error) Problem {
	p := NewProblem(code)
	if e != nil {
		p.KeyRef = e.KeyRef
		if e.RetryAfter > 0 && p.Code != "mismatch" && p.Code != "expired" && p.Code != "already_done" {
			p.RetryAfter = seconds(e.RetryAfter)
		}
	}
	if p.KeyRef == "" && x.past && x.key.ID != "" {
		p.KeyRef = x.g.m.engine.Ref(x.key, x.principal)
	}
	return p
}

// seconds rounds up to whole seconds: a client that comes back early is told to wait again.
func seconds(d time.Duration) int { return int(max(1, (d+time.Second-1)/time.Second)) }

// keyClass is the class of a refused key in what is reported, or "".
func keyClass(code string) string {
	switch code {
	case "key_missing", "key_multiple", "key_empty", "key_malformed", "key_length", "key_not_issued":
		return strings.TrimPrefix(code, "key_")
	}
	return ""
}

// send answers with a problem and says what became of the request.
func (x *exchange) send(p Problem) {
	if class := keyClass(p.Code); class != "" {
		x.g.m.engine.Report(x.r.Context(), idempo.Event{Kind: "invalid_key", Operation: x.g.op.Name, Surface: "http", Class: class})
	}
	if x.past {
		x.w.Header().Set(headerStatus, statusOf(p.Code))
	}
	if x.g.link != "" && (p.Code == "in_progress" || p.Code == "in_doubt") {
		x.w.Header().Add("Link", x.g.link)
	}
	x.g.m.WriteProblem(x.w, x.r, p)
}

// statusOf is the value of Idempotency-Status beside a problem.
func statusOf(code string) string {
	switch code {
	case "in_progress", "in_doubt", "mismatch", "expired":
		return code
	case "result_not_kept":
		return "not_kept"
	case "outcome_unknown", "tx_ended":
		return "in_doubt"
	case "handler_timeout", "response_too_large", "tx_aborted":
		return "released"
	default:
		return "refused"
	}
}
