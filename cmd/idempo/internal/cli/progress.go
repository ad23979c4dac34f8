package cli

import (
	"fmt"
	"strings"
	"time"
)

// progress says on stderr how far a long work is: a bar that is drawn over itself on a terminal, a line each 30 s elsewhere,
// objects with --progress json, nothing with --progress none.
type progress struct {
	a     *app
	mode  string // bar, line, json, none
	what  string
	total int
	begun time.Time
	said  time.Time
	drawn bool
}

// quiet is how often a work without a terminal says how far it is.
const quiet = 30 * time.Second

func (a *app) progress(mode, what string, total int) *progress {
	p := &progress{a: a, mode: mode, what: what, total: total, begun: time.Now()}
	if mode == "auto" {
		p.mode = "line"
		if terminal(a.p.Err) {
			p.mode = "bar"
		}
	}
	p.said = p.begun
	if p.mode == "bar" || p.mode == "json" {
		p.at(0) // the first sign comes at once
	}
	return p
}

// at says that done are done.
func (p *progress) at(done int) {
	now := time.Now()
	took := now.Sub(p.begun)
	rate := 0.0
	if took > 0 {
		rate = float64(done) / took.Seconds()
	}
	switch {
	case p.mode == "bar":
		p.drawn = true
		p.a.err.printf("\r%s", p.bar(done, rate))
	case p.mode == "json":
		p.a.err.line(fmt.Sprintf(`{"schema":1,"progress":{"what":%q,"done":%d,"total":%d,"per_second":%.0f}}`, p.what, done, p.total, rate))
	case p.mode == "line" && now.Sub(p.said) >= quiet:
		p.said = now
		p.a.err.printf("%s: %d of %d, %.0f/s\n", p.what, done, p.total, rate)
	}
}

// bar is at most 79 columns, so that no terminal of 80 breaks it.
func (p *progress) bar(done int, rate float64) string {
	const width = 24
	share := 1.0
	if p.total > 0 {
		share = min(1, float64(done)/float64(p.total))
	}
	full := int(share * width)
	left := ""
	if rate > 0 && done < p.total {
		left = (time.Duration(float64(p.total-done)/rate) * time.Second).String() + " left"
	}
	return fmt.Sprintf("%-8s [%s%s] %d/%d  %.0f/s  %-12s", p.what, strings.Repeat("#", full), strings.Repeat(".", width-full), done, p.total, rate, left)
}

// end leaves the bar as it is and begins a new line.
func (p *progress) end() {
	if p.drawn {
		p.a.err.line("")
	}
}
