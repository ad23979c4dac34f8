package idemhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

func short(u *tune) { u.op.Guard, u.op.Lease = idempo.GuardLeased, 3*time.Second }

func TestLeases(t *testing.T) {
	t.Parallel()
	t.Run("[http/H16] a handler longer than its lease: renewed, one run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { time.Sleep(20 * time.Second); created(s, w, r) }, short)
			done := make(chan answer)
			go func() { done <- s.do(post("k", "{}")) }()
			other := s.another(created, short)
			for range 6 {
				time.Sleep(3 * time.Second)
				other.do(post("k", "{}")).is(409, "in_progress")
			}
			(<-done).is(201, "executed")
			s.counted(1, 1)
			other.counted(0, 0)
		})
	})
	t.Run("[http/H17] lease lost: the context ends with its cause; the token still stands, so the answer is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var cause error
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				cause = context.Cause(r.Context())
				created(s, w, r)
			}, short)
			s.store.renew = func() error { return &idempo.Error{Op: "renew", Code: "unavailable"} }
			s.do(post("k", "{}")).is(201, "executed")
			if !errors.Is(cause, idempo.ErrLeaseLost) {
				t.Errorf("cause %v", cause)
			}
			s.do(post("k", "{}")).is(201, "replayed")

			taken := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				time.Sleep(10 * time.Second) // long enough for another attempt
				created(s, w, r)
			}, rerun)
			taken.store.renew = s.store.renew
			done := make(chan answer)
			go func() { done <- taken.do(post("k", "{}")) }()
			time.Sleep(5 * time.Second)
			other := taken.another(created, rerun)
			other.do(post("k", "{}")).is(201, "executed")
			late := <-done
			late.is(503, "outcome_unknown")
			if again := other.do(post("k", "{}")); again.said() != "replayed" || again.body != `{"run":1}` || late.header.Get("Location") != "" {
				t.Errorf("overwritten: %q %v", again.body, late.header)
			}
			if n := taken.events.count("fenced", ""); n != 1 {
				t.Errorf("counted %d fenced writes", n)
			}
		})
	})
	t.Run("[http/H17] a handler that never looks at its context and finishes after its lease: kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { time.Sleep(10 * time.Second); created(s, w, r) }, short)
			s.store.renew = func() error { return &idempo.Error{Op: "renew", Code: "unavailable"} }
			ctx, cancel := context.WithCancel(t.Context())
			go func() { time.Sleep(time.Second); cancel() }() // its client has left besides
			s.do(post("k", "{}").WithContext(ctx)).is(201, "executed")
			s.do(post("k", "{}")).is(201, "replayed")
			s.counted(1, 1)
		})
	})
	t.Run("[http/H18] owner crashed: 409 until the lease ends, then as OnCrash says", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			crash := func(change func(*tune)) *site {
				s := build(t, created, change)
				claimOnly(t, s, "k", "{}")
				return s.another(created, change)
			}
			hold := crash(short)
			a := hold.do(post("k", "{}"))
			a.is(409, "in_progress")
			if n, _ := strconv.Atoi(a.header.Get("Retry-After")); n < 1 || n > 3 {
				t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
			}
			time.Sleep(3*time.Second + 1)
			b := hold.do(post("k", "{}"))
			b.is(409, "in_doubt")
			if b.problem().Retryable || b.header.Get("Retry-After") != "" {
				t.Errorf("hold is said to settle by itself: %s", b.body)
			}
			hold.counted(0, 0)

			again := crash(rerun)
			time.Sleep(3*time.Second + 1)
			again.do(post("k", "{}")).is(201, "executed")
			again.counted(1, 1)

			for state, want := range map[idempo.State]string{idempo.StateCompleted: "replayed", idempo.StateFailed: "executed", idempo.StateInDoubt: "in_doubt"} {
				probed := crash(func(u *tune) {
					short(u)
					u.op.OnCrash = idempo.OnCrashProbe
					u.op.ProbeFunc = func(context.Context, idempo.Record) (idempo.State, idempo.Result, error) {
						return state, idempo.Result{Status: 200, Body: []byte("probed")}, nil
					}
				})
				time.Sleep(3*time.Second + 1)
				c := probed.do(post("k", "{}"))
				if c.said() != want {
					t.Errorf("probe says %s: %d %q, want %q", state, c.status, c.said(), want)
				}
				if state == idempo.StateCompleted && c.body != "probed" {
					t.Errorf("the probe's result: %q", c.body)
				}
				if state == idempo.StateInDoubt && (!c.problem().Retryable || c.header.Get("Retry-After") == "") {
					t.Errorf("a probe will settle it: %s", c.body)
				}
			}
		})
	})
	t.Run("[http/H19] StartMark: before Start it may run again, after it not", func(t *testing.T) {
		marked := func(u *tune) { short(u); u.op.StartMark = true }
		for _, how := range []string{"500", "panic", "start fails"} {
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				if s.runs.Load() > 1 {
					created(s, w, r)
					return
				}
				if how == "start fails" {
					if err := idempo.FromContext(r.Context()).Start(r.Context()); err == nil {
						t.Error("Start succeeded")
					}
				}
				if how == "panic" {
					panic("before start")
				}
				w.WriteHeader(500)
			}, marked)
			if how == "start fails" {
				s.store.renew = func() error { return &idempo.Error{Op: "renew", Code: "unavailable"} }
			}
			if how == "panic" {
				if v := panicOf(func() { s.do(post("k", "{}")) }); v != "before start" {
					t.Errorf("panic %v", v)
				}
			} else {
				s.do(post("k", "{}")).is(500, "released")
			}
			s.do(post("k", "{}")).is(201, "executed")

			after := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				if err := idempo.FromContext(r.Context()).Start(r.Context()); err != nil {
					t.Error(err)
				}
				s.effect(r.Context())
				w.WriteHeader(500)
			}, marked)
			after.do(post("k", "{}")).is(500, "in_doubt")
			after.do(post("k", "{}")).is(409, "in_doubt")
			after.counted(1, 1)
		}
	})
	t.Run("[http/H20] the result cannot be saved: 503 outcome_unknown, saved later, never a second run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, created, leased)
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			go func() { defer close(stopped); _ = s.engine.Run(ctx) }()
			down := true
			var mu sync.Mutex
			s.store.complete = func(idempo.CompleteParams) error {
				mu.Lock()
				defer mu.Unlock()
				if down {
					return &idempo.Error{Op: "complete", Code: "unavailable"}
				}
				return nil
			}
			start := time.Now()
			a := s.do(post("k", "{}"))
			a.is(503, "outcome_unknown")
			if took := time.Since(start); took < 9*time.Second || took > 12*time.Second {
				t.Errorf("tried for %v of the bubble's clock, want 10s", took)
			}
			if !a.problem().SameKey || !a.problem().Retryable || a.header.Get("Location") != "" {
				t.Errorf("%s %v", a.body, a.header)
			}
			b := s.do(post("k", "{}"))
			if b.status != 409 {
				t.Errorf("meanwhile %d %q", b.status, b.body)
			}
			mu.Lock()
			down = false
			mu.Unlock()
			time.Sleep(2 * time.Minute)
			c := s.do(post("k", "{}"))
			c.is(201, "replayed")
			s.counted(1, 1)
			cancel()
			<-stopped
		})
	})
}

// rerun is for operations whose far side honours our key.
func rerun(u *tune) {
	short(u)
	u.op.OnCrash, u.op.DownstreamHonoursKey = idempo.OnCrashRerun, true
}

// claimOnly leaves the record that an owner leaves who dies in its handler: it stops at the claim and never settles.
func claimOnly(t *testing.T, s *site, key, body string) {
	t.Helper()
	claimed := make(chan idempo.AcquireParams, 1)
	s.store.acquire = func(p idempo.AcquireParams) error {
		claimed <- p
		return &idempo.Error{Op: "acquire", Code: "unavailable"}
	}
	s.do(post(key, body)).is(503, "store_unavailable")
	if _, err := s.store.Store.Acquire(t.Context(), <-claimed); err != nil {
		t.Fatal(err)
	}
}

func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func TestHandlersThatDoNotReturn(t *testing.T) {
	t.Parallel()
	t.Run("[http/H21] panic, ErrAbortHandler, Goexit: settled, then the original value goes on", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			for _, value := range []any{"boom", http.ErrAbortHandler, errors.New("x"), nil} {
				s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
					s.effect(r.Context())
					if s.runs.Load() > 1 {
						return
					}
					w.WriteHeader(201)
					if value == nil {
						runtime.Goexit()
					}
					panic(value)
				}, func(u *tune) { u.op.Guard = guard })
				w := httptest.NewRecorder()
				ended := make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					s.h.ServeHTTP(w, post("k", "{}"))
					t.Error("it returned")
				}()
				if got := <-ended; got != value {
					t.Errorf("%s: ended with %v, want %v", guard, got, value)
				}
				if w.Code != 200 || w.Body.Len() != 0 || len(w.Header()) != 0 {
					t.Errorf("%s: something left: %d %v", guard, w.Code, w.Header())
				}
				if guard == idempo.GuardAtomic {
					s.do(post("k", "{}")).is(200, "executed")
					s.counted(2, 1)
					continue
				}
				s.do(post("k", "{}")).is(409, "in_doubt")
				s.counted(1, 1)
			}
		}
	})
	t.Run("[http/H11] over MaxRun: atomic undone and 504 handler_timeout, leased in doubt and 504 outcome_unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			slow := func(s *site, w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); created(s, w, r) }
			s := build(t, slow, func(u *tune) { u.op.MaxRun = time.Second })
			a := s.do(post("k", "{}"))
			a.is(504, "handler_timeout")
			if a.header.Get("Location") != "" || a.said() != "released" {
				t.Errorf("headers %v", a.header)
			}
			s.counted(1, 0)
			if n := s.records(); n != 0 {
				t.Errorf("%d records", n)
			}
			l := build(t, slow, func(u *tune) { leased(u); u.op.MaxRun = time.Second })
			b := l.do(post("k", "{}"))
			b.is(504, "outcome_unknown")
			if b.said() != "in_doubt" || b.problem().Retryable {
				t.Errorf("%v %s", b.header, b.body)
			}
			l.do(post("k", "{}")).is(409, "in_doubt")
		})
	})
}

func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	leave := func(t *testing.T, change func(*tune)) (*site, error) {
		var s *site
		entered, gone := make(chan struct{}), make(chan error, 1)
		s = build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			s.effect(r.Context())
			if s.runs.Load() > 1 {
				return
			}
			if r.Context().Value(outerKey{}) != "kept" {
				t.Error("the context lost its values")
			}
			close(entered)
			if cut := r.Header.Get("X-Wait"); cut == "cancel" {
				<-r.Context().Done()
				gone <- r.Context().Err()
			} else {
				<-gone // the server has seen the client go
				gone <- r.Context().Err()
			}
			w.WriteHeader(201)
		}, change)
		finished := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Wait") != "" {
				defer close(finished)
				outer := r.Context()
				if r.Header.Get("X-Wait") == "continue" {
					go func() { <-outer.Done(); gone <- nil }()
				}
			}
			s.h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), outerKey{}, "kept")))
		}))
		defer server.Close()
		wait := "continue"
		if s.m != nil && change != nil {
			var u tune
			change(&u)
			if u.rules.OnDisconnect == idemhttp.DisconnectCancel {
				wait = "cancel"
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/pay?x=1", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("X-Wait", wait)
		go func() { <-entered; cancel() }()
		if res, err := server.Client().Do(r); err == nil {
			res.Body.Close()
			t.Error("the client got an answer")
		}
		<-finished
		return s, <-gone
	}
	t.Run("[http/H22] the handler goes on under a detached context, and the retry replays", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			for _, wait := range []time.Duration{0, time.Minute} { // a waiter would have ended with its client
				s, err := leave(t, func(u *tune) { u.op.Guard, u.rules.Wait = guard, wait })
				if err != nil {
					t.Errorf("%s, %v: the handler's context ended: %v", guard, wait, err)
				}
				s.do(post("k", "{}")).is(201, "replayed")
				s.counted(1, 1)
			}
		}
	})
	t.Run("[http/H22] DisconnectCancel: atomic rolls back, leased in doubt", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			s, err := leave(t, func(u *tune) { u.op.Guard, u.rules.OnDisconnect = guard, idemhttp.DisconnectCancel })
			if err == nil {
				t.Errorf("%s: the handler's context did not end", guard)
			}
			if guard == idempo.GuardAtomic {
				s.counted(1, 0)
				s.do(withValue(post("k", "{}"))).is(200, "executed")
				continue
			}
			s.do(post("k", "{}")).is(409, "in_doubt")
			s.counted(1, 1)
		}
	})
	t.Run("a client that leaves between the claim and the handler is not served, and its key is free", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			s := build(t, created, func(u *tune) { u.op.Guard = guard })
			ctx, cancel := context.WithCancel(t.Context())
			s.store.acquired = func(a idempo.Acquired) idempo.Acquired { cancel(); return a }
			s.do(post("k", "{}").WithContext(ctx)).is(503, "store_unavailable")
			s.counted(0, 0)
			s.do(post("k", "{}")).is(201, "executed")
			s.counted(1, 1)
		}
	})
	t.Run("[http/H24] an outer TimeoutHandler cuts the answer: the real result is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release, done := make(chan struct{}), make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { <-release; created(s, w, r) }, nil)
			outer := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				s.h.ServeHTTP(w, r)
			}), time.Second, "too slow")
			if a := serve(t, outer, post("k", "{}")); a.status != 503 || a.body != "too slow" {
				t.Errorf("outer answer %d %q", a.status, a.body)
			}
			close(release)
			<-done
			s.do(post("k", "{}")).is(201, "replayed")
			s.counted(1, 1)
		})
	})
}

type outerKey struct{}

func withValue(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), outerKey{}, "kept"))
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	t.Run("[http/H26] duplicates in this process cost no store call, and are compared", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { <-release; created(s, w, r) }, nil)
			done := make(chan answer)
			go func() { done <- s.do(post("k", "{}")) }()
			synctest.Wait()
			before := s.store.calls.Load()
			for range 100 {
				s.do(post("k", "{}")).is(409, "in_progress")
				s.do(post("k", `{"x":1}`)).is(422, "mismatch")
			}
			if n := s.store.calls.Load() - before; n != 0 {
				t.Errorf("%d store calls", n)
			}
			close(release)
			(<-done).is(201, "executed")
			s.counted(1, 1)
		})
	})
	t.Run("[http/H27] Wait: woken with the result; over time 409; the client gone: the waiter ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { <-release; created(s, w, r) },
				func(u *tune) { leased(u); u.rules.Wait = 5 * time.Second })
			elsewhere := s.another(created, func(u *tune) { leased(u); u.rules.Wait = 30 * time.Second })
			first, far, same := make(chan answer, 1), make(chan answer, 1), make(chan answer, 1)
			go func() { first <- s.do(post("k", "{}")) }()
			synctest.Wait()
			start := time.Now()
			s.do(post("k", "{}")).is(409, "in_progress")
			if took := time.Since(start); took != 5*time.Second {
				t.Errorf("waited %v of the bubble's clock", took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s.do(post("k", "{}").WithContext(ctx))
			if took := time.Since(start); took != 6*time.Second {
				t.Errorf("a waiter outlived its client: %v", took)
			}
			go func() { same <- s.do(post("k", "{}")) }()
			go func() { far <- elsewhere.do(post("k", "{}")) }()
			time.Sleep(2 * time.Second)
			close(release)
			(<-first).is(201, "executed")
			committed := time.Now()
			(<-same).is(201, "replayed")
			if took := time.Since(committed); took != 0 {
				t.Errorf("woken after %v", took)
			}
			(<-far).is(201, "replayed")
			if took := time.Since(committed); took > 300*time.Millisecond {
				t.Errorf("polled after %v", took)
			}
			s.counted(1, 1)
			elsewhere.counted(0, 0)
		})
	})
	t.Run("[http/H28] the owner releases while many wait: exactly one runs next", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				if s.runs.Load() == 1 {
					<-release
					w.WriteHeader(429)
					return
				}
				created(s, w, r)
			}, func(u *tune) { u.rules.Wait = time.Minute })
			words := make(chan string, 20)
			for range 20 {
				go func() { words <- s.do(post("k", "{}")).said() }()
			}
			synctest.Wait()
			close(release)
			seen := map[string]int{}
			for range 20 {
				seen[<-words]++
			}
			if seen["released"] != 1 || seen["executed"] != 1 || seen["replayed"] != 18 {
				t.Errorf("%v", seen)
			}
			s.counted(2, 1)
		})
	})
	t.Run("[http/H29] Retry-After is half the age, at most 30 s and the rest of the lease, at least 1 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { <-release }, func(u *tune) { leased(u); u.op.Lease = time.Hour })
			elsewhere := s.another(created, func(u *tune) { leased(u); u.op.Lease = time.Hour })
			done := make(chan answer, 1)
			go func() { done <- s.do(post("k", "{}")) }()
			synctest.Wait()
			for _, step := range []struct {
				age  time.Duration
				want string
			}{{0, "1"}, {9 * time.Second, "5"}, {51 * time.Second, "30"}} {
				time.Sleep(step.age)
				for _, a := range []answer{s.do(post("k", "{}")), elsewhere.do(post("k", "{}"))} {
					a.is(409, "in_progress")
					if got := a.header.Get("Retry-After"); got != step.want || strconv.Itoa(a.problem().RetryAfter) != got {
						t.Errorf("after another %v: Retry-After %q, want %q", step.age, got, step.want)
					}
				}
			}
			close(release)
			<-done
			atomic := build(t, func(*site, http.ResponseWriter, *http.Request) {}, nil)
			atomic.store.acquired = func(a idempo.Acquired) idempo.Acquired {
				return idempo.Acquired{Verdict: idempo.VerdictInProgress} // as an open transaction of another process shows
			}
			a := atomic.do(post("k", "{}"))
			a.is(409, "in_progress")
			if got := a.header.Get("Retry-After"); got != "1" {
				t.Errorf("owner and age unknown: Retry-After %q", got)
			}
		})
	})
	t.Run("[http/H39] draining: new keyed requests 503; returns when the running ones are settled, or with their number", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				if idempo.FromContext(r.Context()) != nil {
					<-release
				}
				created(s, w, r)
			}, func(u *tune) { leased(u); u.rules.Key = idemhttp.KeyOptional })
			ctx, cancel := context.WithCancel(t.Context())
			go func() { s.do(post("k", "{}").WithContext(ctx)) }()
			synctest.Wait()
			cancel() // its client is gone
			over, end := context.WithTimeout(t.Context(), time.Second)
			defer end()
			if left := s.m.Drain(over); left != 1 {
				t.Errorf("%d left, want 1", left)
			}
			a := s.do(post("k2", "{}"))
			a.is(503, "draining")
			if p := a.problem(); !p.Retryable || !p.SameKey || p.RetryAfter == 0 {
				t.Errorf("%+v", p)
			}
			if a := s.do(post("", "{}")); a.status != 201 {
				t.Errorf("an unkeyed request: %d", a.status)
			}
			drained := make(chan int)
			go func() { drained <- s.m.Drain(t.Context()) }()
			synctest.Wait()
			close(release)
			if left := <-drained; left != 0 {
				t.Errorf("%d left", left)
			}
			if left := s.m.Drain(t.Context()); left != 0 {
				t.Errorf("%d left", left)
			}
		})
	})
}

func TestSpooledBodiesAndAnswers(t *testing.T) { // not parallel: it moves the folder for temporary files
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	big := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	t.Run("[http/R18] bodies and answers beyond 64 KiB are whole, and their files are gone afterwards, after a panic too", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(got, big) {
				t.Errorf("the handler read %d bytes, %v", len(got), err)
			}
			_, _ = w.Write(got)
			if r.Header.Get("X-Panic") != "" {
				panic("half way")
			}
		}, nil)
		first := s.do(post("k", string(big), "Content-Type", "text/plain"))
		again := s.do(post("k", string(big), "Content-Type", "text/plain"))
		first.is(200, "executed")
		again.is(200, "replayed")
		if first.body != string(big) || again.body != first.body {
			t.Errorf("%d and %d bytes", len(first.body), len(again.body))
		}
		other := append(bytes.Clone(big[:len(big)-1]), 'X')
		s.do(post("k", string(other), "Content-Type", "text/plain")).is(422, "mismatch")
		if v := panicOf(func() { s.do(post("p", string(big), "X-Panic", "1")) }); v != "half way" {
			t.Errorf("panic %v", v)
		}
		noFiles(t, temp)
	})
	t.Run("[http/R18] the files of a parsed multipart form are gone too", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1); err != nil {
				t.Error(err)
			}
			file, header, err := r.FormFile("f")
			if err != nil || header.Size != int64(len(big)) {
				t.Fatal(err)
			}
			if _, onDisk := file.(*os.File); !onDisk {
				t.Error("the part is in memory: nothing is shown")
			}
			_ = file.Close()
		}, nil)
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("f", "a.bin")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = part.Write(big)
		_ = form.Close()
		r := post("k", body.String())
		r.Header.Set("Content-Type", form.FormDataContentType())
		s.do(r).is(200, "executed")
		noFiles(t, temp)
	})
}
