package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/idempo/idempo"
)

// RespondFunc makes the first answer to an interaction of a chat: a command, a button, a form. It must have no effect, since
// the work is queued already and runs by the handlers; it has what is left of Config.RespondBudget.
type RespondFunc func(ctx context.Context, ev *Event) (body []byte, err error)

// Respond sets who answers the interactions of a Slack or Discord source at once. The answer is stored before it is sent, and
// the same interaction, delivered again, gets it byte for byte. Where fn is slow, fails or panics, and where there is none, the
// platform is told in time that an answer follows. It panics where the source is not configured.
func (r *Receiver) Respond(source string, fn RespondFunc) {
	e := r.sources[source]
	if e == nil || fn == nil {
		panic(fmt.Sprintf("webhook: Respond needs a function and a source that is configured; %q is none", source))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.respond = fn
}

// deferral is how a platform hears that an answer follows. false: the request is no interaction.
func (e *endpoint) deferral(req *http.Request, body []byte) (Reply, bool) {
	switch e.v.profile.Handshake {
	case HandshakeSlack:
		if asked := RequestOf(req, body); !asked.isForm() {
			return Reply{}, false
		}
		form, err := url.ParseQuery(string(body))
		return Reply{Status: http.StatusOK}, err == nil && (form.Get("command") != "" || form.Get("payload") != "")
	case HandshakeDiscord:
		if !valid(body) {
			return Reply{}, false
		}
		kind, _ := textAt(body, "/type")
		_, id := textAt(body, "/id")
		if _, event := find(body, span{0, len(body)}, "/event"); event || !id {
			return Reply{}, false
		}
		text := map[string]string{"2": `{"type":5}`, "3": `{"type":6}`, "4": `{"type":8,"data":{"choices":[]}}`, "5": `{"type":5}`}[kind.Text]
		return Reply{http.StatusOK, "application/json", []byte(text)}, text != ""
	}
	return Reply{}, false
}

// answerOf is the operation whose records are the answers to interactions.
func (e *endpoint) answerOf() string { return "webhook-answer:" + e.v.source.Name }

// reply answers an interaction whose receipt is committed.
func (r *Receiver) reply(req *http.Request, e *endpoint, ev Event, later Reply, until time.Time) Reply {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(req.Context()), until)
	defer cancel()
	key := idempo.Request{Key: idempo.Key{Tenant: e.tenant, Operation: e.answerOf(), ID: ev.IDs[0].Key}, Surface: "webhook"}
	if b, done, err := r.cfg.Engine.Known(ctx, key); err == nil && done {
		return stored(b, later)
	}
	body, kind := later.Body, later.ContentType
	if text, ok := r.ask(ctx, e, ev); ok {
		body, kind = text, "application/json"
	}
	ctx, cancel = context.WithDeadline(context.WithoutCancel(req.Context()), until.Add(storeSlack))
	defer cancel()
	b, err := r.cfg.Engine.Do(ctx, key, func(context.Context, *idempo.Claim) (idempo.Result, error) {
		return idempo.Result{Status: http.StatusOK, Header: [][2]string{{"Content-Type", kind}}, Body: body}, nil
	})
	switch {
	case err != nil:
		r.cfg.Logger.Error("webhook: the answer to an interaction could not be stored; it is told that one follows", "source", e.v.source.Name, "error", err)
		return later
	case b.Verdict == idempo.VerdictRun:
		return Reply{http.StatusOK, kind, body}
	}
	return stored(b, later)
}

// storeSlack is how much of the time is kept for storing an answer.
const storeSlack = 300 * time.Millisecond

// stored is an answer that was given before.
func stored(b idempo.Begun, later Reply) Reply {
	if b.Verdict != idempo.VerdictReplay {
		return later
	}
	reply := Reply{Status: http.StatusOK, Body: b.Record.Result.Body}
	for _, h := range b.Record.Result.Header {
		reply.ContentType = h[1]
	}
	return reply
}

// ask calls the source's function, as long as there is time. One that is late runs on, and nobody hears of it.
func (r *Receiver) ask(ctx context.Context, e *endpoint, ev Event) (body []byte, ok bool) {
	e.mu.RLock()
	fn := e.respond
	e.mu.RUnlock()
	if fn == nil {
		return nil, false
	}
	type outcome struct {
		body []byte
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o = outcome{err: fmt.Errorf("panic: %v", p)}
			}
			done <- o
		}()
		o.body, o.err = fn(ctx, &ev)
	}()
	select {
	case o := <-done:
		if o.err != nil {
			r.cfg.Logger.Warn("webhook: no first answer to an interaction", "source", e.v.source.Name, "error", o.err)
		}
		return o.body, o.err == nil
	case <-ctx.Done():
		r.cfg.Logger.Warn("webhook: no first answer to an interaction", "source", e.v.source.Name, "error", errors.New("out of time"))
		return nil, false
	}
}
