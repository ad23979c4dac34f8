package storetest

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

func resultCases() []testCase {
	return []testCase{
		{name: "[stores/E5] a replay shows status, header pairs in order, body, resource and times as stored", run: replayAsStored},
		{name: "[stores/E5] a later call's settings do not change what is stored", run: laterSettings},
		{name: "[stores/E16] any result comes back equal", run: anyResult},
		{name: "[stores/E16] any snapshot, detail and hash come back equal, nil and empty apart", run: anyInput},
		{name: "[stores/E17] a body that was not kept: size and digest remain, never a cut body, never a second run", run: bodyNotKept},
		{name: "a failing result outside a transaction is stored and replayed", run: failingResult},
		{name: "[stores/E27] references: in the claim, in doubt, at completion, in the tombstone", run: references},
		{name: "the sealing key's id and the trace of the run are kept with the result", run: sealedAndTrace},
	}
}

func replayAsStored(k *K) {
	p := k.claim(k.key())
	r := k.won(p)
	at := k.t0.Add(3 * time.Second)
	_, err := k.Store.Complete(k.ctx, k.done(p, r.Attempt, at))
	k.ok(err)
	for _, later := range []time.Duration{0, time.Hour, retention - k.tick} {
		got := k.verdict(k.again(p, at.Add(later)), idempo.VerdictReplay).Record
		if !got.Result.Equal(answer()) || got.BodySize != 8 || !got.BodyKept || got.Attempt != 1 || got.Owner != p.Owner || !got.CompletedAt.Equal(at) ||
			!got.ExpiresAt.Equal(at.Add(retention)) || !got.GoneAt.Equal(at.Add(retention+tombstone)) || !got.CreatedAt.Equal(k.t0) || !got.ClaimedAt.Equal(k.t0) {
			k.Errorf("after %s: %+v", later, got)
		}
		k.same("the row", k.look(p.Key, at.Add(later)), got)
	}
}

func laterSettings(k *K) {
	p := k.claim(k.key())
	want := k.completed(p)
	p = k.again(p, k.t0.Add(time.Second))
	p.OnCrash, p.Guard, p.Lease, p.DerivedKey, p.Snapshot, p.Surface = idempo.OnCrashRerun, idempo.GuardLeased, time.Hour, "other", []byte("other"), "grpc"
	k.verdict(p, idempo.VerdictReplay)
	_, err := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: p.Key, Now: p.Now})
	k.ok(err)
	k.same("the row", k.look(p.Key, p.Now), want)
}

// results are answers that some encoding would bend.
func results() []idempo.Result {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return []idempo.Result{
		{}, {Status: 0, Body: []byte{}}, {Status: 204}, {Status: -1, Body: []byte{}}, {Status: math.MaxInt32, Body: []byte("null")},
		{Status: 200, Body: []byte("0")}, {Status: 200, Body: []byte("false")}, {Status: 200, Body: []byte{0}}, {Status: 200, Body: []byte(`""`)},
		{Status: 200, Body: every}, {Status: 200, Body: bytes.Repeat(every, 400)}, {Status: 200, Body: []byte("\xff\xfe\x00")},
		{Status: 200, Header: [][2]string{{"A", "1"}, {"A", "1"}, {"a", "2"}, {"A", "1"}, {"B", ""}, {"", "x"}}},
		{Status: 200, Header: [][2]string{{"Set-Thing", string(every)}, {string(every), "\xff"}, {"x", "{\"b64\":\"AA==\"}"}, {"y", "\x00"}, {"z", "é\u2028"}}},
		{Status: 422, Failing: true, Body: []byte("declined")},
		{Status: 201, Resource: idempo.Resource{Type: "order", ID: strings.Repeat("é", 127)}}, {Status: 201, Resource: idempo.Resource{ID: "no type"}},
		{Status: 201, Resource: idempo.Resource{Type: "no id"}}, {Status: 201, Resource: idempo.Resource{Type: "null", ID: "'; --"}},
	}
}

func anyResult(k *K) {
	for i, want := range results() {
		p := k.claim(k.key())
		c := k.done(p, k.won(p).Attempt, k.t0)
		c.Result, c.Size = want, int64(len(want.Body))
		r, err := k.Store.Complete(k.ctx, c)
		k.ok(err)
		for _, got := range []idempo.Record{r, k.look(p.Key, k.t0), k.verdict(k.again(p, k.t0), idempo.VerdictReplay).Record} {
			if !got.Result.Equal(want) {
				k.Errorf("result %d: %#v, want %#v", i, got.Result, want)
			}
		}
		_, err = k.Store.Complete(k.ctx, c)
		k.ok(err) // recognised as equal
	}
}

func anyInput(k *K) {
	for i, in := range [][]byte{nil, {}, {0}, []byte("null"), []byte("\xff\x00\xfe"), bytes.Repeat([]byte("\x00\xff"), 50_000)} {
		p := k.claim(k.key())
		p.Snapshot, p.Detail = in, in
		k.won(p)
		r := k.look(p.Key, k.t0)
		if (r.Snapshot == nil) != (in == nil) || !bytes.Equal(r.Snapshot, in) || !bytes.Equal(r.Detail, in) {
			k.Errorf("input %d: snapshot %d bytes, nil %t; detail %d bytes", i, len(r.Snapshot), r.Snapshot == nil, len(r.Detail))
		}
	}
	for _, hash := range [][]byte{bytes.Repeat([]byte{0}, 32), bytes.Repeat([]byte{0xff}, 64), []byte("0123456789abcdef")} {
		p := k.claim(k.key())
		p.Hash, p.Recipe = hash, "recipe with spaces, é and 'quotes'"
		want := k.won(p)
		if string(want.Hash) != string(hash) || want.Recipe != p.Recipe {
			k.Errorf("hash %x as %x, recipe %q", hash, want.Hash, want.Recipe)
		}
		k.completed(k.claim(k.key()))
		other := k.again(p, k.t0)
		other.Hash = bytes.Clone(hash)
		other.Hash[len(hash)-1] ^= 1
		k.verdict(other, idempo.VerdictMismatch)
		other = k.again(p, k.t0)
		other.Recipe = "another"
		k.verdict(other, idempo.VerdictMismatch)
		k.verdict(k.again(p, k.t0), idempo.VerdictInProgress)
	}
}

func bodyNotKept(k *K) {
	p := k.claim(k.key())
	c := k.done(p, k.won(p).Attempt, k.t0)
	c.Result.Body, c.Kept, c.Size, c.SHA256 = nil, false, 5<<20, digest("the large body")
	_, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	r := k.verdict(k.again(p, k.t0), idempo.VerdictReplay).Record
	if r.BodyKept || r.BodySize != 5<<20 || string(r.BodySHA256) != string(digest("the large body")) || r.Result.Body != nil || r.Result.Status != 201 {
		k.Errorf("kept %t, %d bytes, digest %x, body %q", r.BodyKept, r.BodySize, r.BodySHA256, r.Result.Body)
	}
}

func failingResult(k *K) {
	p := k.claim(k.key())
	c := k.done(p, k.won(p).Attempt, k.t0)
	c.Result = idempo.Result{Status: 402, Body: []byte("declined"), Failing: true}
	_, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	if r := k.verdict(k.again(p, k.t0), idempo.VerdictReplay).Record; !r.Result.Equal(c.Result) || r.State != idempo.StateCompleted {
		k.Errorf("%s %+v", r.State, r.Result)
	}
}

func references(k *K) {
	p := k.claim(k.key())
	k.won(p)
	var want []idempo.Resource
	for i, id := range []string{"ch_1", "é", "Ch_1"} {
		r := k.renew(p, k.t0.Add(time.Duration(i)*time.Second))
		r.Refer = idempo.Resource{Type: "charge", ID: id}
		want = append(want, r.Refer)
		for range 2 { // sent twice by a driver
			_, err := k.Store.Renew(k.ctx, r)
			k.ok(err)
		}
	}
	stale := k.renew(p, k.t0)
	stale.Token, stale.Refer = k.token(), idempo.Resource{Type: "charge", ID: "stray"}
	_, err := k.Store.Renew(k.ctx, stale)
	k.code(err, "lease_lost")
	check := func(what string, r idempo.Record, s idempo.State) {
		k.Helper()
		if r.State != s || len(r.References) != 3 || r.References[0] != want[0] || r.References[1] != want[1] || r.References[2] != want[2] {
			k.Errorf("%s: %s, references %v", what, r.State, r.References)
		}
	}
	check("while it runs", k.look(p.Key, k.t0), idempo.StatePending)
	check("after the crash", k.look(p.Key, k.t0.Add(time.Hour)), idempo.StateInDoubt)
	_, err = k.Store.Complete(k.ctx, k.done(p, 1, k.t0.Add(time.Hour)))
	k.ok(err)
	check("completed", k.look(p.Key, k.t0.Add(time.Hour)), idempo.StateCompleted)
	check("tombstone", k.look(p.Key, k.t0.Add(time.Hour+retention)), idempo.StateExpired)
}

func sealedAndTrace(k *K) {
	p := k.claim(k.key())
	c := k.done(p, k.won(p).Attempt, k.t0)
	c.Sealed = "enc-2026"
	_, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	if r := k.look(p.Key, k.t0); r.Sealed != "enc-2026" || r.Trace != p.Trace || r.Surface != "http" || r.DerivedKey != p.DerivedKey {
		k.Errorf("sealed %q, trace %q, surface %q, derived key %q", r.Sealed, r.Trace, r.Surface, r.DerivedKey)
	}
}
