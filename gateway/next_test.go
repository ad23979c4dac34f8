package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	t.Parallel()
	t.Run("[http/P27] reload and replicas with old and new configuration under load: each key runs once", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		runs := map[string]int{}
		handler := func(name string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				runs[r.Header.Get("Idempotency-Key")]++
				mu.Unlock()
				fmt.Fprint(w, name)
			})
		}
		one, _ := counting(t, handler("old"))
		two, _ := counting(t, handler("new"))
		w := newWorld(t)
		older, newer := payTo(nil, one.URL), payTo(func(r *Route) {
			r.Retention, r.MaxRun, r.Outcomes = time.Hour, 30*time.Second, map[int]string{404: "release"}
		}, two.URL)
		first, replica := w.gate(older, nil), w.gate(newer, nil)
		// The swap of a server: one listener, and whichever gateway is current.
		var current atomic.Pointer[Gateway]
		current.Store(first.g)
		swapped := *first
		swapped.address = serveHandler(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { current.Load().ServeHTTP(rw, r) }))
		const keys = 60
		var clients sync.WaitGroup
		var bad atomic.Int32
		for client := range 6 {
			clients.Go(func() {
				for i := range keys {
					g := &swapped
					if (client+i)%3 == 0 {
						g = replica
					}
					r, err := g.try("POST", "/v1/payments", "abc", fmt.Sprintf("Idempotency-Key: k%d", i))
					if err != nil || (r.StatusCode != 200 && r.StatusCode != 409) {
						bad.Add(1)
						t.Errorf("key %d: %v %d %s", i, err, r.StatusCode, r.body)
					}
					if i == keys/2 && client == 0 {
						next, err := first.g.Next(newer)
						if err != nil {
							t.Error(err)
							return
						}
						t.Cleanup(next.Close)
						current.Store(next)
					}
				}
			})
		}
		clients.Wait()
		if left := first.g.Drain(t.Context()); left != 0 {
			t.Errorf("%d left on the old one", left)
		}
		for i := range keys {
			if n := runs[fmt.Sprintf("k%d", i)]; n != 1 {
				t.Errorf("key %d ran %d times", i, n)
			}
			r := swapped.do("POST", "/v1/payments", "abc", fmt.Sprintf("Idempotency-Key: k%d", i))
			swapped.want(r, 200, "replayed", "")
		}
		if r := swapped.do("POST", "/v1/payments", "abc", "Idempotency-Key: later"); r.body != "new" {
			t.Errorf("after the reload: %s", r.body)
		}
	})
	t.Run("[http/P27] a request keeps the configuration it began with", func(t *testing.T) {
		t.Parallel()
		arrived, goOn := make(chan struct{}), make(chan struct{})
		up, _ := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-goOn
			w.WriteHeader(404)
		}))
		g := newWorld(t).gate(payTo(func(r *Route) { r.Outcomes = map[int]string{404: "release"} }, up.URL), nil)
		running := make(chan got1, 1)
		go func() {
			r, err := g.try("POST", "/v1/payments", "abc", "Idempotency-Key: k1")
			running <- got1{r, err}
		}()
		<-arrived
		next, err := g.g.Next(payTo(func(r *Route) { r.Lease = time.Minute }, up.URL))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(next.Close)
		close(goOn)
		if first := <-running; first.err != nil || first.r.mark() != "released" {
			t.Errorf("%v %v", first.r.mark(), first.err)
		}
	})
	t.Run("what takes a restart is refused as a whole", func(t *testing.T) {
		t.Parallel()
		base := func() Config { return payTo(nil, "http://127.0.0.1:1") }
		g := newWorld(t).gate(base(), nil)
		before := fmt.Sprintf("%+v", g.engine.Operations())
		for path, change := range map[string]func(*Config){
			"tenant": func(c *Config) {
				c.Tenant, c.TrustedProxies = Tenant{Header: "X-Account"}, []string{"10.0.0.1"}
			},
			"limits":                func(c *Config) { c.Limits.Head = 1 },
			"timeouts.idle":         func(c *Config) { c.Timeouts.Idle = 1 },
			"routes[1].operation":   func(c *Config) { c.Routes[1].Operation = "other" },
			"routes[1].key":         func(c *Config) { c.Routes[1].Key.Headers = []string{"X-Ref"} },
			"routes[1].fingerprint": func(c *Config) { c.Routes[1].Exclude = []string{"/sent_at"} },
			"routes[1].guard":       func(c *Config) { c.Routes[1].Guard = "upstream" },
		} {
			c := base()
			c.Routes[1].Retention = time.Minute
			change(&c)
			_, err := g.g.Next(c)
			if f, ok := errors.AsType[*FieldError](err); !ok || f.Path != path || !strings.Contains(f.Problem, "restart") {
				t.Errorf("%s: %v", path, err)
			}
		}
		c := base()
		c.Routes[1].Retention, c.Routes[1].MaxBody = time.Minute, 1
		c.Routes = append(c.Routes, Route{Match: "POST /bad", Upstream: "up", Operation: "bad", Key: KeyRules{Pattern: "("}})
		if _, err := g.g.Next(c); err == nil {
			t.Error("a bad pattern was taken")
		}
		if after := fmt.Sprintf("%+v", g.engine.Operations()); !strings.Contains(after, before[1:len(before)-1]) {
			t.Errorf("the operations changed:\n%s\n%s", before, after)
		}
	})
}

// serveHandler serves h on a listener of its own.
func serveHandler(t *testing.T, h http.Handler) string {
	t.Helper()
	g := passing(t, passTo("http://127.0.0.1:1"))
	g.config.Routes = nil
	srv := g.Server()
	srv.Handler = h
	return serveWith(t, g, srv)
}
