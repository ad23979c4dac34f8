package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/webhook"
)

// weighed is a body without end that looks at the heap at every read.
type weighed struct{ most uint64 }

func (w *weighed) Read(p []byte) (int, error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.most = max(w.most, m.HeapAlloc)
	return len(p), nil
}

func (*weighed) Close() error { return nil }

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("a body that is declared too large was read")
	return 0, io.EOF
}

func (untouched) Close() error { return nil }

func TestTooLarge(t *testing.T) { // not parallel: it weighs the heap
	t.Run("[webhooks/W7] over the limit: 413, declared ones unread and the connection closed, the heap bounded; exactly the limit is accepted", func(t *testing.T) {
		const limit = 4 << 20
		src := github(text("1", "k"))
		src.MaxBody = limit
		s := newSite(t, nil, src)
		serve := func(body io.ReadCloser, length int64) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/hooks/gh", body)
			r.ContentLength = length
			w := httptest.NewRecorder()
			s.rcv.ServeHTTP(w, r)
			return w
		}
		w := serve(untouched{t}, limit+1)
		if w.Code != http.StatusRequestEntityTooLarge || w.Header().Get("Connection") != "close" {
			t.Errorf("declared: %d %q", w.Code, w.Header())
		}
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		endless := &weighed{}
		if w := serve(endless, -1); w.Code != http.StatusRequestEntityTooLarge || w.Header().Get("Connection") != "close" {
			t.Errorf("without end: %d", w.Code)
		}
		if grown := int64(endless.most) - int64(before.HeapAlloc); endless.most == 0 || grown > limit+64<<10 { //nolint:gosec // sizes of a heap
			t.Errorf("the heap grew by %d for a limit of %d", grown, limit)
		}
		s.want(http.StatusOK, "gh", gh(t, "d1", strings.Repeat("x", limit)))
		if s.work("gh"); s.total() != 1 {
			t.Error("exactly the limit did not run")
		}
	})
}

func TestSlowHandler(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W17] a handler that outlives its lease: answers go on, and there is one effect", func(t *testing.T) {
		s := newSite(t, func(c *webhook.Config) { c.Lease = time.Second }, github(text("1", "k")))
		started, release := make(chan struct{}), make(chan struct{})
		var starts atomic.Int32
		slowly := func(ctx context.Context, ev *webhook.Event) error {
			if starts.Add(1) == 1 {
				close(started)
				<-release
			}
			return s.effect(ctx, ev)
		}
		s.rcv.Handle("gh", "*", slowly)
		other, err := webhook.New(webhook.Config{Engine: engineOver(t, s.store), Sources: []webhook.Source{github(text("1", "k"))}, Now: at, Lease: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		other.Handle("gh", "*", slowly)
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		done := make(chan error, 1)
		go func() { _, err := webhook.Once(t.Context(), s.rcv, "gh"); done <- err }()
		<-started
		s.store.ahead.Add(int64(time.Hour)) // its lease passes
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.want(http.StatusOK, "gh", gh(t, "d2", `{"other":1}`))
		if _, err := webhook.Once(t.Context(), other, "gh"); err != nil {
			t.Fatal(err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Log("the late one:", err)
		}
		s.store.ahead.Add(int64(time.Hour))
		for range 3 {
			s.work("gh")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for what, n := range s.effects {
			if n != 1 {
				t.Errorf("%s had %d effects", what, n)
			}
		}
		if len(s.effects) != 2 {
			t.Errorf("%v", s.effects)
		}
	})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W18] pauses have full jitter between first and max; attempts or max_age end them; what is dead says what happened", func(t *testing.T) {
		src := github(text("1", "k"))
		src.Retry = webhook.Retry{Attempts: 6, First: time.Minute, Max: 3 * time.Minute}
		for range 20 {
			s := newSite(t, nil, src)
			n := 0
			s.rcv.Handle("gh", "*", func(context.Context, *webhook.Event) error { n++; return fmt.Errorf("failure %d\nwith a stack", n) })
			s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
			for try, most := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
				s.work("gh")
				it := s.item("gh")
				if pause := it.NextAt.Sub(it.ChangedAt); it.Status != "retrying" || it.Attempts != try+1 || pause < 0 || pause > most {
					t.Fatalf("after %d: %s, in %v", it.Attempts, it.Status, pause)
				}
				s.store.ahead.Add(int64(most))
			}
			s.work("gh")
			it := s.item("gh")
			if it.Status != "dead" || it.Reason != "attempts" || it.Attempts != 6 || n != 6 || it.FirstError() != "failure 1" || it.LastError() != "failure 6" || len(it.Failures) != 6 {
				t.Fatalf("%+v", it)
			}
		}
		src.Retry = webhook.Retry{Attempts: 1000, First: time.Hour, Max: time.Hour, MaxAge: 5 * time.Hour}
		s := newSite(t, nil, src)
		n := 0
		s.rcv.Handle("gh", "*", func(context.Context, *webhook.Event) error { n++; return errors.New("never") })
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		for range 10 {
			s.work("gh")
			s.store.ahead.Add(int64(time.Hour))
		}
		if it := s.item("gh"); it.Status != "dead" || it.Reason != "attempts" || n < 5 || n > 9 {
			t.Errorf("after 10 hours and %d starts: %s", n, it.Status)
		}
	})
}

func TestBodies(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/D16] bodies go, keys stay; what waits for a person keeps its body, and stays", func(t *testing.T) {
		src := github(text("1", "k"))
		src.Retention, src.BodyRetention, src.AllowShortWindow = 48*time.Hour, time.Hour, true
		s := newSite(t, nil, src)
		s.rcv.Handle("gh", "*", func(ctx context.Context, ev *webhook.Event) error {
			if string(ev.Body) == `"bad"` {
				return inbox.Permanent(errors.New("never"))
			}
			return s.effect(ctx, ev)
		})
		s.want(http.StatusOK, "gh", gh(t, "d1", `"good"`))
		s.want(http.StatusOK, "gh", gh(t, "d2", `"bad"`))
		s.want(http.StatusOK, "gh", gh(t, "d1", `"other"`)) // parked
		s.work("gh")
		look := func(ahead time.Duration, want ...string) {
			t.Helper()
			s.store.ahead.Add(int64(ahead))
			if _, err := s.rcv.Inbox("gh").Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			items, err := s.rcv.Items(t.Context(), "gh", inbox.ListParams{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, it := range items {
				gone := ""
				if it.Body == nil && !it.BodyUntil.IsZero() && len(it.Header) == 0 {
					gone = " gone"
				}
				got = append(got, it.Status+" "+string(it.Body)+gone)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		look(59*time.Minute, `handled "good"`, `dead "bad"`, `parked "other"`)
		look(2*time.Minute, `handled  gone`, `dead "bad"`, `parked "other"`)
		s.want(http.StatusOK, "gh", gh(t, "d1", `"good"`)) // the key is still there
		s.work("gh")
		if s.total() != 1 {
			t.Errorf("%d effects", s.total())
		}
		look(48*time.Hour, `dead "bad"`, `parked "other"`)
		look(10000*time.Hour, `dead "bad"`, `parked "other"`)
	})
}
