package realcheck

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo/internal/crashtest"
)

// Of the 200 calls of the upstream, so many are cut at each point; which ones, and how, the seed says.
const cutBeforeRequest, cutInRequest, cutBeforeAnswer, cutInAnswer = 6, 6, 20, 20

// pointsConfig has two addresses that answer and one that does not, and a service that comes up late. wait lets a retry wait
// out the running request; the short lease is how long a killed gateway blocks a key. The breaker would hold back the very
// requests that are to be cut.
const pointsConfig = `version: 1
store: {sqlite: FOLDER/idempo.db, acquire_timeout: 20s}
listen: {gateway: "127.0.0.1:0", admin: "127.0.0.1:0"}
gateway:
  tenant: {global: true}
  upstreams:
    pocketbase: {urls: ["http://%s", "http://%s", "http://%s"], breaker: false}
    late: {urls: ["http://%s"], breaker: false}
  routes:
    - {match: "POST %[5]s", upstream: pocketbase, operation: create-order, on_crash: hold, lease: 2s, wait: 20s}
    - {match: "POST late.test%[5]s", upstream: late, operation: create-late-order, on_crash: hold, lease: 2s, wait: 20s}
`

// run is what one run left.
type run struct {
	upstream string // PocketBase itself
	gateway  *gateway
	near     *surgeon // between clients and gateway
	far      *surgeon // between gateway and PocketBase, under two addresses
	lives    atomic.Int64
	all      []*customer
	records  map[string][]string
	tally    crashtest.Tally
}

// Every cut is at a known point, and the gateway is killed with a request held at each stage of its way: of each key it is
// known what the gateway can know, and it says so.
func TestPocketBaseCutAtPoints(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	seed, err := strconv.ParseUint(flag.Lookup("seed").Value.String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("repeat with: go test -count=1 ./internal/realcheck -run TestPocketBaseCutAtPoints -seed %d", seed)
	s := &run{upstream: startPocketBase(t)}
	s.far = newSurgeon(fixed(s.upstream), farPlans(seed))
	s.far.life = func() int { return int(s.lives.Load()) }
	late := closedAddress(t)
	s.gateway = startGateway(t, fmt.Sprintf(pointsConfig, s.far.listen(ctx, t, "127.0.0.1:0"), s.far.listen(ctx, t, "127.0.0.1:0"), closedAddress(t), late, orders))
	s.near = newSurgeon(s.gateway.serving, nearPlans(seed))
	s.let(ctx, t, seed)
	judge(ctx, t, s.gateway, s.upstream, s.all, &s.tally)
	if s.records, err = records(ctx, s.upstream); err != nil {
		t.Fatal(err)
	}
	s.count(t)
	t.Run("[http/P6] cut after it was sent: called once, at one address; outcome_unknown, then in_doubt", s.sentUnknown)
	t.Run("[http/P8] dropped with a connection that was used before: called once", s.reusedConnection)
	t.Run("[http/P11] hold: killed after the claim, after forwarding, after the reply: in_doubt, at most one call", s.killed)
	t.Run("what was answered whole is done", s.wholeAnswers)
	t.Run("[http/P5] never sent: the next address; all failed: upstream_unreachable, and a retry executes", func(t *testing.T) {
		s.neverSent(ctx, t, late)
	})
}

// let lets the clients loose, and kills the gateway twice among them.
func (s *run) let(ctx context.Context, t *testing.T, seed uint64) {
	t.Helper()
	base := "http://" + s.near.listen(ctx, t, "127.0.0.1:0")
	at := dice(seed, "kills")
	s.far.traps = []*trap{newTrap(40 + at.IntN(30)), newTrap(110 + at.IntN(30))}
	var kills sync.WaitGroup
	kills.Go(func() {
		for _, tr := range s.far.traps {
			n, err := tr.kill(ctx, s.gateway, s.near.flying)
			if err != nil {
				t.Error(err)
				continue
			}
			s.lives.Add(1)
			s.tally.Add("kills with requests in flight", min(n, 1))
			s.tally.Add("requests in flight at kills", n)
		}
	})
	s.all = crowd(ctx, base, "order", 16, func() {})
	kills.Wait()
}

// count says what the run came to, and the least that it must.
func (s *run) count(t *testing.T) {
	t.Helper()
	for _, all := range s.near.history() {
		for _, x := range all {
			if x.cut == beforeAnswer || x.cut == inAnswer {
				s.tally.Add("answers cut before the gateway", 1)
			}
		}
	}
	for _, all := range s.far.history() {
		for _, x := range all {
			if x.passed && x.cut != nowhere {
				s.tally.Add("calls cut behind the gateway after they were sent", 1)
			}
		}
	}
	for kind, n := range map[string]int{"answers cut before the gateway": 50, "calls cut behind the gateway after they were sent": 20,
		"kills with requests in flight": 2, "keys done": 100, "keys in doubt": 1, "keys answered twice": 50} {
		s.tally.Least(kind, n)
	}
	t.Log(&s.tally)
	if err := s.tally.Void(); err != nil {
		t.Error(err)
	}
}

// last is the answer to the last, undisturbed question for a key, done whether any answer said so.
func (s *run) last(key string) (r reply, done bool) {
	for _, c := range s.all {
		if c.key == key {
			return c.replies[len(c.replies)-1], slices.ContainsFunc(c.replies, reply.done)
		}
	}
	return reply{}, false
}

// inDoubt checks a key of which the gateway cannot know what became.
func (s *run) inDoubt(t *testing.T, key string) {
	t.Helper()
	if r, done := s.last(key); done || r.status != http.StatusConflict || r.code != "in_doubt" {
		t.Errorf("%s: done: %t, the last answer is %d %s", key, done, r.status, r.body)
	}
}

func (s *run) sentUnknown(t *testing.T) {
	unknown, cut := 0, map[point]int{}
	for key, all := range s.far.history() {
		if len(all) != 1 {
			t.Errorf("%s: the upstream was called %d times", key, len(all))
		}
		if all[0].cut != nowhere {
			cut[all[0].cut]++
			s.inDoubt(t, key)
		}
	}
	for _, c := range s.all {
		for _, r := range c.replies {
			if r.code == "outcome_unknown" {
				unknown++
			}
		}
	}
	if len(cut) != 4 || unknown == 0 {
		t.Errorf("void: cuts %v, outcome_unknown heard %d times", cut, unknown)
	}
}

func (s *run) reusedConnection(t *testing.T) {
	n := 0
	for key, all := range s.far.history() {
		// Nothing of an answer came: net/http, left alone, would send a request with an Idempotency-Key again.
		if all[0].reused && all[0].passed && all[0].cut == beforeAnswer {
			n++
			if len(all) != 1 || len(s.records[key]) > 1 {
				t.Errorf("%s: called %d times, %d records", key, len(all), len(s.records[key]))
			}
		}
	}
	t.Logf("%d calls were dropped with a connection that was used before", n)
	if n == 0 {
		t.Error("void: no such call")
	}
}

func (s *run) killed(t *testing.T) {
	at := map[stage]int{}
	for key, all := range s.far.history() {
		for _, x := range all {
			if x.halt == 0 {
				continue
			}
			at[x.halt]++
			s.inDoubt(t, key)
			made, most := len(s.records[key]), 1
			if x.halt == claimed {
				most = 0
			}
			if len(all) != 1 || made > most || made == 0 && x.halt == replied {
				t.Errorf("%s, killed at stage %d: called %d times, %d records", key, x.halt, len(all), made)
			}
		}
	}
	if at[claimed] != 2 || at[forwarded] != 2 || at[replied] != 2 {
		t.Errorf("void: kills by stage %v", at)
	}
}

func (s *run) wholeAnswers(t *testing.T) {
	n, lives := 0, int(s.lives.Load())
	for key, all := range s.far.history() {
		if all[0].whole && all[0].life == lives {
			n++
			if r, done := s.last(key); !done || !r.done() {
				t.Errorf("%s: the gateway got a whole answer, lived on, and says %d %s", key, r.status, r.body)
			}
		}
	}
	if n == 0 {
		t.Error("void: no whole answer after the last kill")
	}
	for _, c := range s.all {
		for _, r := range c.replies {
			if r.code == "upstream_unreachable" {
				t.Errorf("%s: unreachable, though two addresses of three answer", c.key)
			}
		}
	}
}

// neverSent asks for orders while the only address of their upstream refuses connections, and again when it does not.
func (s *run) neverSent(ctx context.Context, t *testing.T, late string) {
	address, err := s.gateway.serving(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var early []*customer
	for i := range 10 {
		c := &customer{key: fmt.Sprintf("late-%d", i), client: newClient(), base: "http://" + address, host: "late.test"}
		early = append(early, c)
		if r := c.send(ctx); r.status != http.StatusBadGateway || r.code != "upstream_unreachable" {
			t.Errorf("%s: nobody listens, and the answer is %d %s", c.key, r.status, r.body)
		}
	}
	through := newSurgeon(fixed(s.upstream), func(string, int) plan { return plan{} })
	through.listen(ctx, t, late)
	for _, c := range early {
		first, second := c.send(ctx), c.send(ctx)
		if !first.done() || second.body != first.body || len(through.history()[c.key]) != 1 {
			t.Errorf("%s: somebody listens now, and the answers are %d %s and %d %s", c.key, first.status, first.body, second.status, second.body)
		}
	}
	have, err := records(ctx, s.upstream)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range early {
		if len(have[c.key]) != 1 {
			t.Errorf("%s: %d records", c.key, len(have[c.key]))
		}
	}
}

// farPlans cuts fixed numbers of the first calls for the keys of a crowd; which ones, the seed says. Later calls for a key,
// of which there must be none, pass.
func farPlans(seed uint64) func(string, int) plan {
	order := dice(seed, "far").Perm(clients)
	points := slices.Concat(slices.Repeat([]point{beforeRequest}, cutBeforeRequest), slices.Repeat([]point{inRequest}, cutInRequest),
		slices.Repeat([]point{beforeAnswer}, cutBeforeAnswer), slices.Repeat([]point{inAnswer}, cutInAnswer))
	cuts := map[string]point{}
	for i, at := range points {
		cuts[fmt.Sprintf("order-%d", order[i])] = at
	}
	return func(key string, nth int) plan {
		if nth > 1 {
			return plan{}
		}
		d := dice(seed, "far", key)
		return plan{at: cuts[key], part: d.Float64(), reset: d.IntN(2) == 0, hasty: d.IntN(2) == 0}
	}
}

// nearPlans cuts more than half of the exchanges of clients.
func nearPlans(seed uint64) func(string, int) plan {
	return func(key string, nth int) plan {
		d := dice(seed, "near", key, strconv.Itoa(nth))
		at := nowhere
		switch n := d.IntN(100); {
		case n < 8:
			at = beforeRequest
		case n < 16:
			at = inRequest
		case n < 36:
			at = beforeAnswer
		case n < 56:
			at = inAnswer
		}
		return plan{at: at, part: d.Float64(), reset: d.IntN(2) == 0, hasty: d.IntN(2) == 0}
	}
}

// closedAddress finds an address where nobody listens, and where one can. Its port is below those that systems give to
// outgoing connections, one of which would otherwise take it in between.
func closedAddress(t *testing.T) string {
	t.Helper()
	for {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			_ = ln.Close()
			return ln.Addr().String()
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}
