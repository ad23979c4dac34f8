package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/webhook"
)

func (s *site) item(source string) webhook.Item {
	s.t.Helper()
	items, err := s.rcv.Items(s.t.Context(), source, inbox.ListParams{})
	if err != nil || len(items) != 1 {
		s.t.Fatalf("%+v, %v", items, err)
	}
	return items[0]
}

func (s *site) noted(source string) {
	s.t.Helper()
	if err := webhook.Note(s.t.Context(), s.rcv, source); err != nil {
		s.t.Fatal(err)
	}
}

// lines are the messages of a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) count(text string) int { return strings.Count(l.all(), text) }

func TestAgain(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/D7] what is dead and comes again runs again, at most once per 10 minutes", func(t *testing.T) {
		for name, dead := range map[string]error{"permanent": inbox.Permanent(errors.New("never")), "attempts": errors.New("fails")} {
			src := github(text("1", "k"))
			src.Retry = webhook.Retry{Attempts: 2, First: 1, Max: 1}
			s := newSite(t, nil, src)
			runs := 0
			fail := dead
			s.rcv.Handle("gh", "*", func(ctx context.Context, ev *webhook.Event) error {
				if runs++; fail != nil {
					return fail
				}
				return s.effect(ctx, ev)
			})
			dead := func(want string) {
				t.Helper()
				if it := s.item("gh"); it.Status+" "+it.Reason != want {
					t.Errorf("%s: %s %s, want %s", name, it.Status, it.Reason, want)
				}
			}
			again := func(ahead time.Duration) {
				s.store.ahead.Add(int64(ahead))
				s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
				s.noted("gh")
				s.work("gh")
			}
			s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
			for range 2 {
				s.work("gh")
			}
			dead("dead " + name)
			first := runs
			again(9 * time.Minute)
			if runs != first {
				t.Errorf("%s: it ran again after 9 minutes", name)
			}
			again(2 * time.Minute)
			again(0)
			dead("dead " + name)
			if runs != 2*first {
				t.Errorf("%s: %d starts in all, want %d", name, runs, 2*first)
			}
			fail = nil
			again(11 * time.Minute)
			dead("handled ")
			if s.total() != 1 {
				t.Errorf("%s: %d effects", name, s.total())
			}
		}
	})
	t.Run("[webhooks/D8] a duplicate reads, and writes nothing; it is counted behind, in one batch", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.work("gh")
		before := s.store.count()
		for range 7 {
			s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		}
		if ops := s.store.ops[before:]; len(ops) != 7 || slices.ContainsFunc(ops, func(op string) bool { return op != "lookup" }) {
			t.Errorf("store calls for 7 duplicates: %v", ops)
		}
		if it := s.item("gh"); it.Seen != 0 {
			t.Errorf("counted at once: %+v", it)
		}
		s.noted("gh")
		if it := s.item("gh"); it.Seen != 7 || it.SeenAt.IsZero() || it.Status != "handled" {
			t.Errorf("%+v", it)
		}
		s.noted("gh")
		if it := s.item("gh"); it.Seen != 7 {
			t.Errorf("counted twice: %d", it.Seen)
		}
	})
}

// sendAt hands a GitHub push to a source at a time of the receiver's clock.
func (s *site) sendAt(source, id string, now time.Time) {
	s.t.Helper()
	out, err := webhook.Sign(github(text("1", "k")), webhook.SignParams{Body: []byte(`{"id":"` + id + `"}`), ID: id, Type: "push", At: now})
	if err != nil {
		s.t.Fatal(err)
	}
	s.want(http.StatusOK, source, out.Request())
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W38] a target that fails again and again rests; one attempt decides; others go on", func(t *testing.T) {
		var down atomic.Bool
		x := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		well := newTarget(t, func(http.ResponseWriter, *http.Request) {})
		store := newCounted()
		now := func() time.Time { return at().Add(time.Duration(store.ahead.Load())) }
		sick := forwarding(x, true, func(f *webhook.Forward) { f.Breaker, f.BreakerPause = 3, time.Minute })
		sick.Retry.Attempts = 50
		other := forwarding(well, true)
		other.Name = "other"
		var log lines
		rcv, err := webhook.New(webhook.Config{Engine: engineOver(t, store), Sources: []webhook.Source{sick, other}, Now: now, Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, store: store, rcv: rcv, effects: map[string]int{}}
		down.Store(true)
		s.sendAt("gh", "a", now())
		s.work("gh") // three failures in a row, and then it rests
		items := func() (list []string) {
			all, err := rcv.Items(t.Context(), "gh", inbox.ListParams{})
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range all {
				list = append(list, fmt.Sprint(it.Status, " ", it.Reason, " ", it.Attempts))
			}
			return list
		}
		if x.count() != 3 || !slices.Equal(items(), []string{"retrying target resting 3"}) {
			t.Fatalf("%d sent, %q", x.count(), items())
		}
		s.sendAt("gh", "b", now())
		s.sendAt("other", "c", now())
		s.work("gh")
		s.work("other")
		if x.count() != 3 || well.count() != 1 || !slices.Equal(items(), []string{"retrying target resting 3", "retrying target resting 0"}) {
			t.Fatalf("while it rests: %d sent, %d to the other, %q", x.count(), well.count(), items())
		}
		if !rcv.Resting("gh") || rcv.Resting("other") || log.count("rests") != 1 {
			t.Errorf("no alarm: %v", log.all())
		}
		store.ahead.Add(int64(61 * time.Second))
		s.work("gh") // one is tried and fails: it rests for twice as long
		if x.count() != 4 {
			t.Errorf("half open: %d sent", x.count())
		}
		store.ahead.Add(int64(61 * time.Second))
		s.work("gh")
		if x.count() != 4 {
			t.Errorf("the pause did not grow: %d sent", x.count())
		}
		down.Store(false)
		store.ahead.Add(int64(61 * time.Second))
		s.work("gh")
		if x.count() != 6 || rcv.Resting("gh") || !slices.Equal(items(), []string{"handled  4", "handled  0"}) && !slices.Equal(items(), []string{"handled  5", "handled  1"}) {
			t.Errorf("back: %d sent, %q", x.count(), items())
		}
	})
}
