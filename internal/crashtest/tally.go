package crashtest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// Tally counts what a run did: kills, faults that took hold, successes. A run that did less than it must proves nothing
// and is void. The zero value is ready; all methods are safe for concurrent use.
type Tally struct {
	mu    sync.Mutex
	done  map[string]int
	least map[string]int
}

// Add counts n of a kind.
func (t *Tally) Add(kind string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = map[string]int{}
	}
	t.done[kind] += n
}

// Count returns how many of a kind were added.
func (t *Tally) Count(kind string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done[kind]
}

// Least states how many of a kind the run needs; stated again, the numbers add up.
func (t *Tally) Least(kind string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.least == nil {
		t.least = map[string]int{}
	}
	t.least[kind] += n
}

// Void returns an error that lists every kind of which there was less than stated, or nothing at all, nil otherwise. A
// run that states nothing is void.
func (t *Tally) Void() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var short []string
	for _, kind := range slices.Sorted(maps.Keys(t.least)) {
		if n := max(t.least[kind], 1); t.done[kind] < n {
			short = append(short, fmt.Sprintf("%s %d of at least %d", kind, t.done[kind], n))
		}
	}
	switch {
	case len(t.least) == 0:
		return fmt.Errorf("void run: it states no minimum")
	case len(short) > 0:
		return fmt.Errorf("void run: %s", strings.Join(short, ", "))
	}
	return nil
}

func (t *Tally) total() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.done {
		n += one
	}
	return n
}

// String lists the counts by name.
func (t *Tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(t.done)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, t.done[kind]))
	}
	return strings.Join(parts, ", ")
}

// Row is what one step of a crash run came to. Kills whose outcome was not the wanted one are in Kills alone.
type Row struct {
	Store, Guard, Step, Name string
	Kills                    int
	Effects                  Tally // by number: "0", "1", "2"
	Verdicts                 Tally // the final ones
}

// WriteTable prints rows, sorted by store, guard and step.
func WriteTable(w io.Writer, rows []*Row) error {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b *Row) int {
		return strings.Compare(a.Store+"\x00"+a.Guard+"\x00"+a.Step, b.Store+"\x00"+b.Guard+"\x00"+b.Step)
	})
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "store\tguard\tstep\tkills\tE=0\tE=1\tE>1\twrong\tfinal answer of the retries\tkilled")
	for _, r := range rows {
		zero, one, all := r.Effects.Count("0"), r.Effects.Count("1"), r.Effects.total()
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n",
			r.Store, r.Guard, r.Step, r.Kills, zero, one, all-zero-one, r.Kills-all, &r.Verdicts, r.Name)
	}
	return tw.Flush()
}
