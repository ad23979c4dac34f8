package sqlite

import (
	"testing"
	"time"
)

// world is a host whose clocks a test turns.
type world struct {
	wall time.Time
	mono time.Duration // of every process: they begin together
	up   int64
	boot string
}

func newWorld() *world {
	return &world{wall: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), up: 1e9, boot: "b1"}
}

func (w *world) pass(d time.Duration) {
	w.wall, w.mono, w.up = w.wall.Add(d), w.mono+d, w.up+d.Microseconds()
}

func (w *world) step(d time.Duration) { w.wall = w.wall.Add(d) }

// process is one process that has opened the file whose anchor is a.
type process struct {
	clock
	file *anchor
}

func (w *world) open(file *anchor) *process {
	p := &process{file: file}
	p.host = host{
		wall: func() time.Time { return w.wall },
		mono: func() time.Duration { return w.mono },
		up:   func() (string, int64) { return w.boot, w.up },
	}
	p.adopt(*file)
	return p
}

// write is a writing transaction: the clock under the lock.
func (p *process) write() time.Time {
	if p.stale() {
		*p.file = parseAnchor(p.follow(*p.file).text())
	}
	return p.now()
}

const lease = 30 * time.Second

func TestClock(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{30 * time.Second, -30 * time.Second, 29 * time.Minute, -29 * time.Minute} {
		t.Run("[stores/SQ7] the host's clock steps by "+step.String(), func(t *testing.T) {
			t.Parallel()
			w, file := newWorld(), &anchor{}
			owner, other := w.open(file), w.open(file)
			w.pass(time.Minute)
			end := owner.write().Add(lease)
			other.write()
			w.pass(time.Second)
			w.step(step)
			late := w.open(file) // a process that has only seen the clock after the step
			for range 26 {       // up to the moment at which the owner's claim ends by itself: 25 s after its renewal
				for name, p := range map[string]*process{"owner": owner, "other": other, "newcomer": late} {
					if now := p.write(); !now.Before(end) && w.mono < time.Minute+25*time.Second {
						t.Fatalf("%s after %s: the lease ended early", name, w.mono-time.Minute)
					}
				}
				w.pass(time.Second)
			}
			w.pass(8 * time.Second) // nor is it immortal
			for name, p := range map[string]*process{"owner": owner, "other": other, "newcomer": late} {
				if now := p.write(); now.Before(end) {
					t.Errorf("%s: the lease still stands %s after its beginning", name, end.Sub(now))
				}
			}
		})
	}
	t.Run("[stores/SQ7] an idle process that comes back takes the file's time, whichever way it went", func(t *testing.T) {
		t.Parallel()
		for _, step := range []time.Duration{30 * time.Second, -30 * time.Second} {
			w, file := newWorld(), &anchor{}
			idle, busy := w.open(file), w.open(file)
			busy.write()
			w.step(step)
			for range 1200 { // the busy one follows the host's clock, slowly
				w.pass(time.Second)
				busy.write()
			}
			if off := w.wall.Sub(busy.now()).Abs(); off > time.Second {
				t.Errorf("still %s off after 20 minutes", off)
			}
			if off := idle.write().Sub(busy.now()).Abs(); off > 100*time.Millisecond {
				t.Errorf("the two differ by %s", off)
			}
		}
	})
	t.Run("a restart of the host carries on from the host's clock, never far back", func(t *testing.T) {
		t.Parallel()
		w, file := newWorld(), &anchor{}
		before := w.open(file).write()
		w.pass(time.Second)
		w.open(file).write()
		w.boot, w.up = "b2", 5e6
		w.wall = w.wall.Add(10 * time.Minute) // it was off so long
		if got := w.open(file).write().Sub(before); got < 9*time.Minute || got > 11*time.Minute {
			t.Error(got)
		}
		w.boot, w.up = "b3", 5e6
		w.wall = w.wall.Add(-24 * time.Hour) // its battery is dead
		if got := w.open(file).write().Sub(before); got < 9*time.Minute {
			t.Errorf("the clock went back: %s", got)
		}
	})
	t.Run("a host that slept is followed at once", func(t *testing.T) {
		t.Parallel()
		w, file := newWorld(), &anchor{}
		p := w.open(file)
		p.write()
		w.wall, w.up = w.wall.Add(9*time.Hour), w.up+(9*time.Hour).Microseconds() // mono does not count it
		if !p.stale() {
			t.Fatal("nobody looks again")
		}
		if off := w.wall.Sub(p.write()).Abs(); off > time.Second {
			t.Error(off)
		}
	})
	t.Run("what does not parse is no anchor", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{"", "1 2 3", "a 1 1 b", "1 2 x b"} {
			if parseAnchor(s).stored {
				t.Error(s)
			}
		}
		a := anchor{boot: "b c", up: 7, wall: time.UnixMicro(5).UTC(), shown: time.UnixMicro(6).UTC(), stored: true}
		if got := parseAnchor(a.text()); got != a {
			t.Error(got)
		}
	})
}
