package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"sync/atomic"
	"time"
)

// settings of one run.
type settings struct {
	rounds  int
	each    time.Duration // one contender in one round
	n       *atomic.Int64 // numbers operations over the whole run
	records int           // in a store that has grown
}

// measure is one line, or a few, of the table.
type measure struct {
	id  string // of the specification, so that -run finds it
	run func(ctx context.Context, s settings) ([]result, error)
}

// result is one figure beside its bar.
type result struct {
	id, what string
	value    float64
	unit     string // "": a ratio
	bar      string // as the specification says it
	met      bool
	note     string // absolute figures, for the reader
}

func measures() []measure {
	return []measure{
		{"E35 H50", atomicPgx},
		{"E35 H50", atomicPgxOne},
		{"E35", atomicSQL},
		{"E35", atomicSQLite},
		{"E35 MySQL", atomicMySQL},
		{"E36", leasedPgx},
		{"E34 H52", replayPgx},
		{"E33 H51 H52", flightsPgx},
		{"E37 P52", claimsSQLite},
		{"H53", allocations},
		{"E40", recordSizes},
		{"SEC91 SEC92 SEC94", secureEngines},
		{"M9", signals},
		{"SEC47 SEC90", neighbours},
		{"E30", growth},
		{"E31", strangers},
		{"E32", interference},
		{"E32", migrating},
		{"E38", waiters},
		{"E39", running},
		{"P50 P51", proxied},
		{"SEC93", headCheck},
		{"P53", gatewayMemory},
		{"W52", verification},
		{"I37 I38", messages},
		{"peer", fiberPeer},
		{"RL29", relays},
		{"O21", appends},
	}
}

func main() {
	pattern := flag.String("run", "", "only measures whose id matches this regular expression")
	rounds := flag.Int("rounds", 7, "rounds; the median counts")
	each := flag.Duration("each", 800*time.Millisecond, "how long one contender runs in one round")
	records := flag.Int("records", 1_000_000, "records of a store that has grown (the bar says 10,000,000)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	which := regexp.MustCompile(*pattern)
	fmt.Println(machine())
	fmt.Printf("Command: `go run ./bench -run %q -rounds %d -each %v`\n\n", *pattern, *rounds, *each)
	fmt.Println("| id | measure | figure | bar | | in absolute numbers |\n|---|---|---|---|---|---|")
	failed := 0
	for _, m := range measures() {
		if !which.MatchString(m.id) {
			continue
		}
		// A service has a heap. Beside an empty one the collector runs after every 4 MiB of garbage, and rates are its own.
		// Where the memory itself is measured there is none.
		var heap []byte
		if m.id != "P53" {
			heap = make([]byte, 64<<20)
		}
		results, err := m.run(ctx, settings{*rounds, *each, new(atomic.Int64), *records})
		runtime.KeepAlive(heap)
		if err != nil {
			fmt.Printf("| %s | not measured: %v | | | | |\n", m.id, err)
			failed++
			continue
		}
		for _, r := range results {
			fmt.Println(r.row())
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func (r result) row() string {
	word := "met"
	if !r.met {
		word = "**not met**"
	}
	figure := fmt.Sprintf("%.2f", r.value)
	if r.unit != "" {
		figure = fmt.Sprintf("%.4g %s", r.value, r.unit)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", r.id, r.what, figure, r.bar, word, r.note)
}
