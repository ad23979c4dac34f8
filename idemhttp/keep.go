package idemhttp

import (
	"crypto/sha256"
	"time"

	"github.com/idempo/idempo"
)

// keeping says how a whole answer is kept.
type keeping struct {
	failing   bool
	mode      ResultMode
	resource  idempo.Resource
	retention time.Duration
}

// keep is what the engine stores of the handler's answer. What is left out never reaches the store, not for a moment.
func (x *exchange) keep(claim *idempo.Claim, how keeping) (idempo.Result, error) {
	if how.retention != 0 {
		if err := claim.Retain(how.retention); err != nil {
			return idempo.Result{}, err
		}
	}
	rec := x.rec
	rec.sniff()
	pairs, size, refused := x.g.headers.kept(rec.header, rec.before(), rec.trailers())
	if refused > 0 {
		x.g.m.warn("header lines that could split an answer are not kept", "operation", x.g.op.Name, "count", refused)
	}
	res := idempo.Result{Status: rec.status, Header: pairs, Failing: how.failing, Resource: how.resource}
	if location := rec.header.Get("Location"); res.Resource.IsZero() && location != "" && len(location) <= 255 {
		res.Resource = idempo.Resource{Type: "location", ID: location}
	}
	if err := x.issueNext(claim); err != nil {
		return idempo.Result{}, err
	}
	mode := how.mode
	if mode == "" {
		mode = x.g.rules.Result
	}
	full := mode != ResultPointer && !rec.streaming && size <= maxKeptHeaders && rec.body.size <= x.g.op.MaxResult
	if full {
		body, err := rec.body.all()
		if err != nil {
			return idempo.Result{}, err
		}
		if len(x.g.redact) > 0 && len(body) > 0 {
			body, full = x.g.redact.apply(body)
			res.Header = without(res.Header, "Content-Digest")
		}
		res.Body = body
	}
	if !full {
		whole, sum := rec.whole()
		claim.Omit(whole, sum)
		res.Body = nil
	}
	if size > maxKeptHeaders {
		res.Header = only(res.Header, "Location")
	}
	return res, nil
}

// issueNext makes the next one-time key with the completion of this one.
func (x *exchange) issueNext(claim *idempo.Claim) error {
	if next := x.nextKey(x.print.recipe); next != "" {
		return claim.IssueNext(next)
	}
	return nil
}

func without(pairs [][2]string, name string) (out [][2]string) {
	for _, pair := range pairs {
		if pair[0] != name {
			out = append(out, pair)
		}
	}
	return out
}

func only(pairs [][2]string, name string) (out [][2]string) {
	for _, pair := range pairs {
		if pair[0] == name && len(pair[1]) <= maxKeptHeaders {
			out = append(out, pair)
		}
	}
	return out
}

// whole is the size and SHA-256 of everything the handler wrote.
func (r *recorder) whole() (int64, [sha256.Size]byte) {
	if r.streaming {
		return r.written, [sha256.Size]byte(r.sum.Sum(nil))
	}
	return r.body.size, r.body.digest()
}
