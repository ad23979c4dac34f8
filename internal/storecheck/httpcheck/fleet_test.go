package httpcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

func TestFleet(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		var fleet []*process
		for range 3 {
			fleet = append(fleet, w.start(t, order{}))
		}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32, MaxConnsPerHost: 32}, Timeout: time.Minute}
		defer client.CloseIdleConnections()
		burst := func(n int, key func(int) string) map[string]int {
			var mu sync.Mutex
			words := map[string]int{}
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					r := ask(t.Context(), client, fleet[i%3].url, key(i))
					word := fmt.Sprintf("%d %s", r.status, r.said)
					if r.err != nil {
						word = r.err.Error()
					}
					mu.Lock()
					defer mu.Unlock()
					words[word]++
				})
			}
			wg.Wait()
			return words
		}
		t.Run("[http/H25] 1,000 identical requests over three processes: one run, one executed, the rest replay or 409", func(t *testing.T) {
			words := burst(1000, func(int) string { return "same" })
			if words["201 executed"] != 1 || words["201 executed"]+words["201 replayed"]+words["409 in_progress"] != 1000 {
				t.Errorf("%v", words)
			}
			if n := w.effects(t, "same"); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
		t.Run("[security/SEC16] a burst of 100 identical requests is one effect, one of 100 different keys 100", func(t *testing.T) {
			words := burst(100, func(int) string { return "burst" })
			if words["201 executed"] != 1 || words["201 executed"]+words["201 replayed"]+words["409 in_progress"] != 100 || w.effects(t, "burst") != 1 {
				t.Errorf("%v, %d effects", words, w.effects(t, "burst"))
			}
			words = burst(100, func(i int) string { return fmt.Sprintf("own-%d", i) })
			if words["201 executed"] != 100 {
				t.Errorf("%v", words)
			}
			total := 0
			for i := range 100 {
				total += w.effects(t, fmt.Sprintf("own-%d", i))
			}
			if total != 100 {
				t.Errorf("%d effects", total)
			}
		})
	})
}

// guarded makes a guarded handler over an opened store.
func guarded(t *testing.T, s *opened, op idempo.Operation, rules idemhttp.Rules, h http.HandlerFunc) http.Handler {
	t.Helper()
	engine, err := idempo.New(s.store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
	must(t, err)
	m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
	must(t, err)
	g, err := m.Wrap(op, rules, h)
	must(t, err)
	return g
}

func (w *world) mustOpen(t *testing.T, connections int) *opened {
	t.Helper()
	s, err := w.open(t.Context(), connections)
	must(t, err)
	t.Cleanup(s.close)
	return s
}

func post(h http.Handler, key string) reply {
	r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"amount":12}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return reply{status: rec.Code, said: rec.Header().Get("Idempotency-Status"), body: rec.Body.String()}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		s := w.mustOpen(t, 4)
		atomic := idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}
		key := func(r *http.Request) string { return r.Header.Get("Idempotency-Key") }
		t.Run("[http/H10] a final 4xx: writes undone, 4xx kept and replayed, also where the database had aborted the transaction", func(t *testing.T) {
			for _, abort := range []bool{false, true} {
				h := guarded(t, s, atomic, idemhttp.Rules{}, func(rw http.ResponseWriter, r *http.Request) {
					must(t, s.effect(r.Context(), key(r)))
					if abort && s.query(r.Context(), "insert into no_such_table values (1)") == nil {
						t.Error("the statement did not fail")
					}
					http.Error(rw, "declined", http.StatusPaymentRequired)
				})
				k := fmt.Sprint("declined-", abort)
				first, again := post(h, k), post(h, k)
				if first.status != 402 || first.said != "executed" || again.status != 402 || again.said != "replayed" || again.body != "declined\n" {
					t.Errorf("abort %v: %+v, then %+v", abort, first, again)
				}
				if n := w.effects(t, k); n != 0 {
					t.Errorf("abort %v: %d effects", abort, n)
				}
			}
		})
		t.Run("[http/H11] a 5xx and a panic leave no row; the retry runs", func(t *testing.T) {
			runs := 0
			h := guarded(t, s, atomic, idemhttp.Rules{}, func(rw http.ResponseWriter, r *http.Request) {
				must(t, s.effect(r.Context(), key(r)))
				switch runs++; runs {
				case 1:
					rw.WriteHeader(500)
				case 2:
					panic("boom")
				}
			})
			if a := post(h, "fails"); a.status != 500 || a.said != "released" {
				t.Errorf("%+v", a)
			}
			func() {
				defer func() {
					if v := recover(); v != "boom" {
						t.Errorf("panic %v", v)
					}
				}()
				post(h, "fails")
			}()
			if n := w.effects(t, "fails"); n != 0 {
				t.Errorf("%d effects", n)
			}
			if a := post(h, "fails"); a.status != 200 || a.said != "executed" || w.effects(t, "fails") != 1 {
				t.Errorf("%+v, %d effects", a, w.effects(t, "fails"))
			}
		})
		if w.kind != "sqlite" { // whose transactions survive a failed statement
			t.Run("[http/H12] a swallowed SQL error and a 2xx: 500 tx_aborted, no row, nothing of the answer", func(t *testing.T) {
				h := guarded(t, s, atomic, idemhttp.Rules{}, func(rw http.ResponseWriter, r *http.Request) {
					must(t, s.effect(r.Context(), key(r)))
					_ = s.query(r.Context(), "insert into no_such_table values (1)")
					rw.Header().Set("Location", "/never")
					_, _ = io.WriteString(rw, "all is well")
				})
				a := post(h, "swallowed")
				if a.status != 500 || !strings.Contains(a.body, "tx_aborted") || strings.Contains(a.body, "well") || w.effects(t, "swallowed") != 0 {
					t.Errorf("%+v, %d effects", a, w.effects(t, "swallowed"))
				}
			})
			t.Run("[http/H13] 40001 and 40P01 inside the handler: rolled back, the whole handler again, ≤ TxRetries, then 503", func(t *testing.T) {
				for _, state := range []string{"40001", "40P01"} {
					runs, fail := 0, 2
					h := guarded(t, s, atomic, idemhttp.Rules{}, func(rw http.ResponseWriter, r *http.Request) {
						runs++
						must(t, s.effect(r.Context(), key(r)))
						if runs <= fail {
							err := s.query(r.Context(), `do $$ begin raise exception 'gave up' using errcode = '`+state+`'; end $$`)
							idemhttp.SetError(r.Context(), err)
							http.Error(rw, "the database gave up", http.StatusInternalServerError)
						}
					})
					if a := post(h, "conflict-"+state); a.status != 200 || a.said != "executed" || runs != 3 || w.effects(t, "conflict-"+state) != 1 {
						t.Errorf("%s: %+v after %d runs, %d effects", state, a, runs, w.effects(t, "conflict-"+state))
					}
					runs, fail = 0, 100
					if a := post(h, "hopeless-"+state); a.status != 503 || !strings.Contains(a.body, "store_unavailable") || runs != 4 || w.effects(t, "hopeless-"+state) != 0 {
						t.Errorf("%s: %+v after %d runs", state, a, runs)
					}
				}
			})
		}
		t.Run("[http/H15] a transaction used after its handler returned is an error, and no stray write", func(t *testing.T) {
			var late context.Context
			h := guarded(t, s, atomic, idemhttp.Rules{}, func(rw http.ResponseWriter, r *http.Request) {
				must(t, s.effect(r.Context(), key(r)))
				late = context.WithoutCancel(r.Context())
			})
			if a := post(h, "late"); a.said != "executed" {
				t.Fatalf("%+v", a)
			}
			err := func() (err error) {
				defer func() {
					if recover() != nil { // no transaction any more
						err = errors.New("panic")
					}
				}()
				return s.effect(late, "late")
			}()
			if err == nil || w.effects(t, "late") != 1 {
				t.Errorf("%v, %d effects", err, w.effects(t, "late"))
			}
		})
	})
}

func TestWaitersHoldNoConnection(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"idempgx", "postgres"} {
		t.Run("[http/H26] with a pool of 2 and 100 duplicates of a running key an unrelated key goes through: "+kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind)
			s := w.mustOpen(t, 2)
			release, entered := make(chan struct{}), make(chan struct{})
			var once sync.Once
			h := guarded(t, s, idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}, idemhttp.Rules{Wait: time.Minute}, func(rw http.ResponseWriter, r *http.Request) {
				must(t, s.effect(r.Context(), r.Header.Get("Idempotency-Key")))
				if r.Header.Get("Idempotency-Key") == "slow" {
					once.Do(func() { close(entered) })
					<-release
				}
			})
			words := make(chan string, 101)
			go func() { words <- post(h, "slow").said }()
			<-entered
			for range 100 {
				go func() { words <- post(h, "slow").said }()
			}
			for i := range 20 {
				if a := post(h, fmt.Sprint("other-", i)); a.said != "executed" {
					t.Errorf("%+v", a)
				}
			}
			close(release)
			seen := map[string]int{}
			for range 101 {
				seen[<-words]++
			}
			if seen["executed"] != 1 || seen["replayed"] != 100 {
				t.Errorf("%v", seen)
			}
		})
	}
}

func TestFidelityOnDatabases(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		s := w.mustOpen(t, 4)
		t.Run("[http/R1, R2] status, body bytes and kept headers come back as first sent", func(t *testing.T) {
			for i, c := range []struct {
				status int
				body   string
			}{{200, ""}, {201, "null"}, {202, "0"}, {200, "false"}, {200, "a\x00b\xff\xfe"}, {204, ""}, {303, ""}, {404, "no"}, {200, strings.Repeat("long ", 40_000)}} {
				for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
					h := guarded(t, s, idempo.Operation{Name: "op-" + string(guard), Guard: guard}, idemhttp.Rules{}, func(rw http.ResponseWriter, r *http.Request) {
						rw.Header().Add("Link", "</a>")
						rw.Header().Add("Link", "</b>, </c>")
						rw.Header().Set("X-Odd", "caf\xe9 \t x")
						rw.WriteHeader(c.status)
						_, _ = io.WriteString(rw, c.body)
					})
					do := func() *httptest.ResponseRecorder {
						r := httptest.NewRequest(http.MethodPost, "/pay", nil)
						r.Header.Set("Idempotency-Key", fmt.Sprint("f", i))
						rec := httptest.NewRecorder()
						h.ServeHTTP(rec, r)
						return rec
					}
					first, again := do(), do()
					if first.Code != c.status || again.Code != c.status || again.Body.String() != first.Body.String() ||
						strings.Join(again.Header().Values("Link"), "|") != "</a>|</b>, </c>" || again.Header().Get("X-Odd") != "caf\xe9 \t x" ||
						again.Header().Get("Idempotency-Status") != "replayed" || again.Header().Get("Content-Type") != first.Header().Get("Content-Type") {
						t.Errorf("%s %d: first %d %q %v; replay %d %q %v", guard, i, first.Code, first.Body.String()[:min(50, first.Body.Len())], first.Header(), again.Code, again.Body.String()[:min(50, again.Body.Len())], again.Header())
					}
				}
			}
		})
	})
}
