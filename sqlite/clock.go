package sqlite

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The store's clock lives in the file: an anchor that every process carries on from, so that all of them read the same
// time and a step of the host's clock moves none of them at once. DESIGN.md says why.
const (
	syncEvery = time.Second            // a process looks at the anchor at most so often, in a writing transaction
	slewRate  = 20                     // the store's clock runs at most a twentieth faster or slower than real time
	leap      = time.Hour              // further ahead than this the host is believed at once: it slept, or was wrong before
	skew      = 100 * time.Millisecond // between host clock and monotonic clock since the last look: look again
)

// anchor is the row `clock` of the table meta: what the store's clock showed when the host showed the rest.
type anchor struct {
	boot   string    // id of the host's boot, "" where the platform has none
	up     int64     // µs since that boot
	wall   time.Time // the host's clock
	shown  time.Time // the store's clock
	stored bool      // false: there is none yet
}

// host is where a clock takes its time from; tests give their own.
type host struct {
	wall func() time.Time               // may step
	mono func() time.Duration           // since some moment of this process, never steps
	up   func() (boot string, us int64) // since the host's boot, the same in all processes; "" where unknown
}

func realHost() host {
	start := time.Now()
	return host{wall: time.Now, mono: func() time.Duration { return time.Since(start) }, up: uptime}
}

// uptime reads Linux's time since boot, suspended time included; other platforms have none without cgo or unsafe.
func uptime() (string, int64) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0
	}
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return "", 0
	}
	word, _, _ := strings.Cut(string(text), " ")
	s, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), int64(s * 1e6)
}

// clock is one process's copy of the store's clock. Safe for concurrent use.
type clock struct {
	host host

	mu     sync.Mutex
	base   time.Time     // what the store's clock showed
	mark   time.Duration // at this moment of the monotonic clock
	seen   time.Time     // and of the host's clock
	synced bool
	due    bool // the file has not heard of it yet
}

// now returns the store's time, to the microsecond, UTC.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return micro(c.host.wall())
	}
	return micro(c.base.Add(c.host.mono() - c.mark))
}

// stale says that the anchor should be looked at again in the next writing transaction.
func (c *clock) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := c.host.mono() - c.mark
	drift := c.host.wall().Round(0).Sub(c.seen) - run
	return !c.synced || c.due || run >= syncEvery || drift.Abs() > skew
}

// adopt carries on from the anchor a of the file without a word to it: the first writing transaction will have one.
func (c *clock) adopt(a anchor) {
	c.follow(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = true
}

// follow carries on from the anchor a of the file and returns the next one to store.
func (c *clock) follow(a anchor) anchor {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := anchor{wall: c.host.wall().Round(0), stored: true}
	next.boot, next.up = c.host.up()
	next.shown = a.carry(next)
	c.base, c.mark, c.seen, c.synced, c.due = next.shown, c.host.mono(), next.wall, true, false
	return next
}

// carry returns what the store's clock shows at the host's moment h.
func (a anchor) carry(h anchor) time.Time {
	if !a.stored {
		return h.wall
	}
	elapsed := max(0, h.wall.Sub(a.wall))
	if run := time.Duration(h.up-a.up) * time.Microsecond; a.boot != "" && a.boot == h.boot && run >= 0 &&
		(h.wall.Sub(a.wall)-run).Abs() <= leap {
		elapsed = run // a step of the host's clock is not in it
	}
	shown := a.shown.Add(elapsed)
	off := h.wall.Sub(shown)
	if off > leap {
		return h.wall
	}
	limit := min(elapsed, syncEvery) / slewRate
	return shown.Add(max(-limit, min(limit, off)))
}

// micro is t as it can be stored: UTC, whole microseconds, without a monotonic reading.
func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond).Round(0) }
