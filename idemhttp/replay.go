package idemhttp

import (
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/idempo/idempo"
)

// replay answers from the record, without a write. The caller was authorised like a first one; ReplayFunc may still refuse.
// Nothing stored touches the answer before it is certain that it can leave whole.
func (x *exchange) replay(rec idempo.Record) {
	if f := x.g.rules.ReplayFunc; f != nil {
		if err := f(x.r, rec); err != nil {
			x.refuse("replay_forbidden")
			return
		}
	}
	res := rec.Result
	if res.Status < 200 || res.Status > 599 {
		x.g.m.fault("a stored result has no status of an answer", "operation", x.g.op.Name, "key_ref", rec.Ref())
		x.refuse("result_unreadable")
		return
	}
	if stored(res.Header, headerResult) == ResultNotKept {
		rec.BodyKept, rec.Result.Status = false, 0 // nobody knows what the first answer was
	}
	rendered := x.render(rec, &res)
	h := x.w.Header()
	if !rec.BodyKept && !rendered {
		if x.g.rules.PointerStatus != http.StatusSeeOther || res.Status >= 300 || stored(res.Header, "Location") == "" {
			x.notKept(rec)
			return
		}
		x.g.headers.replayInto(h, only(res.Header, "Location"))
		x.marks(h, rec)
		x.own.sendHead(x.w, h, http.StatusSeeOther, 0, false)
		return
	}
	coding := strings.ToLower(stored(res.Header, "Content-Encoding"))
	if coding != "" && len(res.Body) > 0 && !acceptsCoding(x.r.Header, coding) {
		plain, err := x.g.m.spools.decode(res.Body, coding, x.g.rules.maxSpool())
		if err != nil {
			x.notKept(rec)
			return
		}
		defer plain.close()
		res.Header = without(without(res.Header, "Content-Encoding"), "Content-Digest")
		x.sendStored(rec, res, plain.size, plain.sendTo)
		return
	}
	x.sendStored(rec, res, int64(len(res.Body)), func(w io.Writer) {
		if len(res.Body) > 0 {
			_, _ = w.Write(res.Body)
		}
	})
}

// sendStored sends a stored answer, whatever its status.
func (x *exchange) sendStored(rec idempo.Record, res idempo.Result, size int64, body func(io.Writer)) {
	h := x.w.Header()
	trailer := x.g.headers.replayInto(h, res.Header)
	if _, ok := h["Content-Type"]; !ok && size > 0 {
		h["Content-Type"] = nil // the first answer had none either: do not sniff
	}
	x.marks(h, rec)
	for name, values := range trailer {
		h[http.TrailerPrefix+name] = values
	}
	delete(h, "Content-Length")
	x.own.sendHead(x.w, h, res.Status, size, len(trailer) > 0)
	if bodyAllowed(res.Status) {
		body(x.w)
	}
}

// marks puts idempo's headers on a replay; the rest leaves with its head.
func (x *exchange) marks(h http.Header, rec idempo.Record) {
	h[x.g.m.config.ReplayHeader] = []string{"true"}
	h["Cache-Control"] = []string{"no-store"}
	x.own.status, x.own.expires, x.own.next = "replayed", rec.ExpiresAt, x.nextKey(rec.Recipe)
}

// stored is the first line of a stored header.
func stored(pairs [][2]string, name string) string {
	for _, pair := range pairs {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}

// render makes the body of a replay from the resource as it is now. Status and marker stay those of the first answer; without
// RenderFunc, or where it fails, the stored answer is what there is.
func (x *exchange) render(rec idempo.Record, res *idempo.Result) bool {
	if x.g.rules.RenderFunc == nil {
		return false
	}
	made, err := x.g.rules.RenderFunc(x.r.Context(), rec.Clone())
	if err != nil {
		x.g.m.warn("RenderFunc failed; the stored answer is sent", "operation", x.g.op.Name, "key_ref", rec.Ref())
		return false
	}
	res.Body = made.Body
	if made.Header != nil {
		res.Header = made.Header
	}
	return true
}

// notKept says that it is done and what is known of the answer: its status, its resource, and a digest by which a client
// that still has the answer recognises it.
func (x *exchange) notKept(rec idempo.Record) {
	p := x.problem("result_not_kept", nil)
	p.KeyRef = rec.Ref()
	p.OriginalStatus = rec.Result.Status
	p.Resource = resourceOf(rec.Result.Resource)
	h := x.w.Header()
	for _, pair := range rec.Result.Header {
		if pair[0] == "Location" && writable(pair[0], pair[1]) {
			h.Set("Location", pair[1])
		}
	}
	if h.Get("Location") == "" {
		x.locate(rec.Result.Resource)
	}
	if len(rec.BodySHA256) == 32 {
		h.Set("Content-Digest", contentDigest(rec.BodySHA256))
	}
	x.send(p)
}

// contentDigest is a SHA-256 as RFC 9530 spells it.
func contentDigest(sum []byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":"
}

// nextKey is the one-time key that follows the one of a record, for operations with issued keys. It is made of the record's
// own key under its digest key, so that a replay gives the same one, and nothing but its digest is ever stored.
// It has 192 bits of a MAC in 32 URL-safe characters.
func (x *exchange) nextKey(recipe string) string {
	if !x.g.op.Issued {
		return ""
	}
	keyID, _, err := splitRecipe(recipe)
	if err != nil {
		return ""
	}
	mac, _, err := x.g.m.engine.FingerprintMAC(x.key.Tenant, keyID)
	if err != nil {
		return ""
	}
	h := mac()
	for _, field := range []string{"idempo-next-key", x.principal, x.key.Operation, x.key.ID} {
		h.Write([]byte(strconv.Itoa(len(field)) + ":" + field))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:24])
}
