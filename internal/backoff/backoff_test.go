package backoff_test

import (
	"testing"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

func TestFull(t *testing.T) {
	t.Parallel()
	within := func(n int, most time.Duration) {
		t.Helper()
		var top time.Duration
		for range 1000 {
			d := backoff.Full(n, 100*time.Millisecond, time.Second)
			if d < 0 || d > most {
				t.Fatalf("Full(%d) = %v, most %v", n, d, most)
			}
			top = max(top, d)
		}
		if top < most*8/10 {
			t.Errorf("Full(%d) never came near %v: %v", n, most, top)
		}
	}
	within(0, 100*time.Millisecond)
	within(1, 200*time.Millisecond)
	within(3, 800*time.Millisecond)
	within(4, time.Second)
	within(62, time.Second)
	within(1<<30, time.Second)
	within(-1, 100*time.Millisecond)
}

func TestAround(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if d := backoff.Around(time.Second, 0.1); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Fatal(d)
		}
	}
}
