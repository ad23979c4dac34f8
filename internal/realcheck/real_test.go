package realcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo/internal/crashtest"
)

const (
	clients = 200
	sends   = 5  // of every request
	atOnce  = 50 // clients, where nothing else is said
)

// reply is what a client got for one send: a whole answer, or none.
type reply struct {
	status int // 0: the answer never came, or not whole
	code   string
	id     string // of the record, in a 2xx
	body   string
	again  time.Duration
}

func (r reply) done() bool { return r.status/100 == 2 }

// customer creates one record, under its own key.
type customer struct {
	key     string
	client  *http.Client
	base    string
	host    string // "": that of base
	replies []reply
}

// send sends the request once.
func (c *customer) send(ctx context.Context) reply {
	body := fmt.Sprintf(`{"intent":%q,"amount":%d}`, c.key, len(c.key))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+orders, strings.NewReader(body))
	if err != nil {
		return reply{code: err.Error()}
	}
	req.Host = c.host
	req.GetBody = nil // the transport must not send it again by itself: sends are counted here
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", c.key)
	resp, err := c.client.Do(req)
	if err != nil {
		return reply{code: "no answer"}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{code: "cut answer"}
	}
	var said struct{ ID, Code string }
	_ = json.Unmarshal(text, &said) // a problem or a record
	r := reply{status: resp.StatusCode, code: said.Code, id: said.ID, body: string(text)}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		r.again = time.Duration(n) * time.Second
	}
	return r
}

// insist sends the request as often as sends says, at the pace that the answers ask for, whatever they are.
func (c *customer) insist(ctx context.Context, sent func()) {
	for range sends {
		r := c.send(ctx)
		c.replies = append(c.replies, r)
		sent()
		pause := time.NewTimer(min(r.again, 2*time.Second))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
}

func fixed(address string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return address, nil }
}

// crowd lets all clients insist, atOnce of them at the same time, and returns them when they are done.
func crowd(ctx context.Context, base, name string, atOnce int, sent func()) []*customer {
	all := make([]*customer, clients)
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range all {
		all[i] = &customer{key: fmt.Sprintf("%s-%d", name, i), client: newClient(), base: base}
		room <- struct{}{}
		wg.Go(func() {
			all[i].insist(ctx, sent)
			<-room
		})
	}
	wg.Wait()
	return all
}

// A PocketBase behind the gateway: whatever is cut or killed, no key has two records, and one that was told 2xx has one.
func TestPocketBase(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	upstream := startPocketBase(t)
	behind := openCutter(t, 0.9, 3000, fixed(upstream))
	g := startGateway(t, fmt.Sprintf(gatewayConfig, behind.address(), orders))
	before := openCutter(t, 0.3, 700, g.serving)

	// The gateway dies when a quarter, and when a half of all requests have been sent.
	var tally crashtest.Tally
	var count atomic.Int64
	dying := make(chan struct{}, 2)
	var killer sync.WaitGroup
	killer.Go(func() {
		for range 2 {
			select {
			case <-dying:
			case <-ctx.Done():
				return
			}
			if err := g.kill(); err != nil {
				t.Error(err)
				return
			}
			if err := g.start(); err != nil {
				t.Error(err)
				return
			}
			tally.Add("gateways killed", 1)
		}
	})
	all := crowd(ctx, "http://"+before.address(), "order", atOnce, func() {
		if n := count.Add(1); n == clients*sends/4 || n == clients*sends/2 {
			dying <- struct{}{}
		}
	})
	killer.Wait()
	judge(ctx, t, g, upstream, all, &tally)
	tally.Add("answers cut before the gateway", int(before.cuts.Load()))
	tally.Add("answers cut behind the gateway", int(behind.cuts.Load()))
	for kind, n := range map[string]int{"gateways killed": 2, "answers cut before the gateway": 100, "answers cut behind the gateway": 10,
		"keys done": 100, "keys in doubt": 5, "keys answered twice": 50} {
		tally.Least(kind, n)
	}
	if err := tally.Void(); err != nil {
		t.Errorf("%v (%s)", err, &tally)
	}
	t.Log(&tally)
}

// judge asks once more for each key, without cuts, and compares with what PocketBase has.
func judge(ctx context.Context, t *testing.T, g *gateway, upstream string, all []*customer, tally *crashtest.Tally) {
	t.Helper()
	address, err := g.serving(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			c.base = "http://" + address
			c.replies = append(c.replies, c.final(ctx))
		})
	}
	wg.Wait()
	have, err := records(ctx, upstream)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		var done []reply
		for _, r := range c.replies {
			if tally.Add("answers "+name(r), 1); r.done() {
				done = append(done, r)
			}
		}
		ids, last := have[c.key], c.replies[len(c.replies)-1]
		switch {
		case len(ids) > 1:
			t.Errorf("%s: %d records", c.key, len(ids))
		case len(done) > 0 && len(ids) != 1:
			t.Errorf("%s: answered %d and has %d records", c.key, done[0].status, len(ids))
		case len(done) > 0 && !last.done():
			t.Errorf("%s: answered %d, and later %d %s", c.key, done[0].status, last.status, last.code)
		case len(done) == 0 && (last.status != http.StatusConflict || last.code != "in_doubt"):
			t.Errorf("%s: neither done nor in doubt: %d %s", c.key, last.status, last.code)
		}
		for _, r := range done {
			if r.body != done[0].body || len(ids) == 1 && r.id != ids[0] {
				t.Errorf("%s: answers differ: %q and %q, record %v", c.key, r.body, done[0].body, ids)
			}
		}
		switch {
		case len(done) == 0:
			tally.Add("keys in doubt", 1)
			tally.Add(fmt.Sprintf("keys in doubt with %d records", len(ids)), 1)
		case len(done) > 1:
			tally.Add("keys answered twice", 1)
			fallthrough
		default:
			tally.Add("keys done", 1)
		}
	}
}

func name(r reply) string {
	if r.status == 0 {
		return r.code
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.status, r.code))
}

// final sends until the answer is one that stays: while the first run goes on, or its lease does, it is asked again. So it is
// after outcome_unknown, which only the request hears that was the one to run: all before it were lost on the way.
func (c *customer) final(ctx context.Context) (r reply) {
	for range 10 {
		r = c.send(ctx)
		if r.code != "in_progress" && r.code != "outcome_unknown" {
			break
		}
		pause := time.NewTimer(r.again)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return r
		}
	}
	return r
}

// The control: the same clients and cuts, without the gateway. If no key had two records then, the other test would prove
// nothing.
func TestPocketBaseBare(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	upstream := startPocketBase(t)
	before := openCutter(t, 0.3, 700, fixed(upstream))
	crowd(ctx, "http://"+before.address(), "bare", atOnce, func() {})
	have, err := records(ctx, upstream)
	if err != nil {
		t.Fatal(err)
	}
	twice := 0
	for _, ids := range have {
		if len(ids) > 1 {
			twice++
		}
	}
	if twice < clients/2 {
		t.Errorf("void run: %d of %d keys have a second record without a guard", twice, clients)
	}
	t.Logf("without the gateway %d of %d keys have more than one record", twice, clients)
}
