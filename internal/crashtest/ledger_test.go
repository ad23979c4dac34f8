package crashtest_test

import (
	"slices"
	"testing"

	"github.com/idempo/idempo/internal/crashtest"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	l, err := crashtest.OpenLedger()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := crashtest.LedgerClient{URL: l.URL()}
	do := func(intent, key, content, want string) {
		t.Helper()
		if got, err := c.Do(t.Context(), intent, key, content); err != nil || got != want {
			t.Errorf("%s %s %s: %q %v, want %q", intent, key, content, got, err, want)
		}
	}
	do("plain", "", "a", "a")
	do("plain", "", "b", "b") // without a key every call is done
	do("keyed", "k1", "a", "a")
	do("keyed", "k1", "b", "a") // the same key: done once
	for _, c := range []struct {
		intent         string
		calls, effects []string
	}{
		{"plain", []string{"", ""}, []string{"a", "b"}},
		{"keyed", []string{"k1", "k1"}, []string{"a"}},
		{"never", nil, nil},
	} {
		if got := l.Calls(c.intent); !slices.Equal(got, c.calls) {
			t.Errorf("%s: calls %q", c.intent, got)
		}
		if got := l.Effects(c.intent); !slices.Equal(got, c.effects) {
			t.Errorf("%s: effects %q", c.intent, got)
		}
	}
	if done, ok, err := c.Find(t.Context(), "plain"); err != nil || !ok || done != "a" {
		t.Error(done, ok, err)
	}
	if _, ok, err := c.Find(t.Context(), "never"); err != nil || ok {
		t.Error(ok, err)
	}
	arrived, release := l.Hold("plain")
	heard := make(chan string)
	go func() {
		done, _ := c.Do(t.Context(), "plain", "", "c")
		heard <- done
	}()
	<-arrived
	select {
	case done := <-heard:
		t.Errorf("%q was not kept back", done)
	default:
	}
	if got := l.Effects("plain"); len(got) != 3 {
		t.Errorf("effects while the answer is kept back: %q", got)
	}
	release()
	if done := <-heard; done != "c" {
		t.Error(done)
	}
	away := crashtest.LedgerClient{URL: "http://127.0.0.1:1/effects"}
	if _, _, err := away.Find(t.Context(), "plain"); err == nil {
		t.Error("no error where no ledger is")
	}
}
