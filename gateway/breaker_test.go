package gateway

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	t.Run("[http/P28] opens at five in a row or half of twenty in ten seconds, lets one through, closes on success", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var moves []string
			b := newBreaker(func(s string) { moves = append(moves, s) })
			try := func(good bool) bool {
				if _, ok := b.admit(); !ok {
					return false
				}
				b.done(good)
				return true
			}
			for i := range 4 {
				if !try(false) {
					t.Fatalf("open after %d", i)
				}
			}
			try(true)
			for range 4 {
				try(false)
			}
			if b.open() {
				t.Fatal("a success in between does not end the row")
			}
			try(false)
			if rest, ok := b.admit(); ok || rest != breakerPause || !b.open() || b.rest() != breakerPause {
				t.Fatalf("five in a row: rest %v, ok %v", rest, ok)
			}
			b.done(true) // of a request from before
			if !b.open() {
				t.Fatal("an old request closes it")
			}
			time.Sleep(breakerPause)
			if b.state() != "half_open" || b.open() {
				t.Fatal("still open after the pause")
			}
			if _, ok := b.admit(); !ok {
				t.Fatal("nobody is let through")
			}
			if _, ok := b.admit(); ok || !b.open() {
				t.Fatal("a second one is let through")
			}
			b.done(false)
			if !b.open() {
				t.Fatal("a failed trial closes it")
			}
			time.Sleep(breakerPause)
			if _, ok := b.admit(); !ok {
				t.Fatal("nobody is let through")
			}
			b.forget() // it told nothing
			if _, ok := b.admit(); !ok {
				t.Fatal("the trial is not given back")
			}
			b.done(true)
			if b.state() != "closed" {
				t.Fatal("a good trial does not close it")
			}
			if want := []string{"open", "half_open", "open", "half_open", "half_open", "closed"}; !slices.Equal(moves, want) {
				t.Errorf("moves %v", moves)
			}
			for i := range 18 {
				try(i%2 == 0)
			}
			if b.open() {
				t.Fatal("open with fewer than twenty")
			}
			time.Sleep(11 * time.Second)
			try(true)
			try(false)
			if b.open() {
				t.Fatal("what is older than ten seconds counts")
			}
			for i := range 18 {
				try(i%2 == 0)
			}
			if !b.open() {
				t.Fatal("half of twenty does not open it")
			}
		})
		var off *breaker
		if _, ok := off.admit(); !ok || off.open() || off.state() != "closed" {
			t.Error("a breaker that is off stands in the way")
		}
		off.done(false)
		off.forget()
	})
}
