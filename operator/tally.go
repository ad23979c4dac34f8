package operator

import (
	"math"
	"math/bits"
	"time"

	"github.com/idempo/idempo"
)

// Tally counts calls by their verdict.
type Tally struct {
	Run        int64 `json:"run,omitempty"`
	Replay     int64 `json:"replay,omitempty"` // duplicates avoided
	InProgress int64 `json:"in_progress,omitempty"`
	Mismatch   int64 `json:"mismatch,omitempty"`
	InDoubt    int64 `json:"in_doubt,omitempty"`
	Expired    int64 `json:"expired,omitempty"`
	Error      int64 `json:"error,omitempty"`
	FreshKey   int64 `json:"fresh_key,omitempty"` // runs of a request that had run under two other new keys shortly before
}

// All is every call.
func (t Tally) All() int64 { return t.Run + t.Replay + t.Refused() + t.Error }

// Refused are the calls that were told why not.
func (t Tally) Refused() int64 { return t.InProgress + t.Mismatch + t.InDoubt + t.Expired }

// Add puts the counts of o to t.
func (t *Tally) Add(o Tally) {
	t.Run, t.Replay, t.InProgress, t.Mismatch = t.Run+o.Run, t.Replay+o.Replay, t.InProgress+o.InProgress, t.Mismatch+o.Mismatch
	t.InDoubt, t.Expired, t.Error, t.FreshKey = t.InDoubt+o.InDoubt, t.Expired+o.Expired, t.Error+o.Error, t.FreshKey+o.FreshKey
}

func (t *Tally) count(v idempo.Verdict) {
	switch v {
	case idempo.VerdictRun:
		t.Run++
	case idempo.VerdictReplay:
		t.Replay++
	case idempo.VerdictInProgress:
		t.InProgress++
	case idempo.VerdictMismatch:
		t.Mismatch++
	case idempo.VerdictInDoubt:
		t.InDoubt++
	case idempo.VerdictExpired:
		t.Expired++
	default:
		t.Error++
	}
}

// Spread is a histogram of durations whose buckets grow by a quarter of an octave: what it says of a duration is at most a
// quarter too long. Its zero value is empty and can be read; make one with a map to write.
type Spread map[int]int64

func (s Spread) add(d time.Duration) {
	n := uint64(max(d.Microseconds(), 1))
	octave := bits.Len64(n) - 1
	part := 0
	if octave >= 2 {
		part = int(n>>(octave-2)) & 3
	}
	s[octave*4+part]++
}

func (s Spread) merge(o Spread) {
	for i, n := range o {
		if i >= 0 && i < 64*4 && n > 0 {
			s[i] += n
		}
	}
}

// Count is how many durations there were.
func (s Spread) Count() (n int64) {
	for _, c := range s {
		n += c
	}
	return n
}

// Quantile is a duration that the share q of all was not above, at most a quarter too long; 0: there were none.
func (s Spread) Quantile(q float64) time.Duration {
	all, seen := s.Count(), int64(0)
	if all == 0 {
		return 0
	}
	for i := range 64 * 4 {
		n := s[i]
		if seen += n; n > 0 && float64(seen) >= q*float64(all) {
			us := math.Ldexp(1+float64(i%4+1)/4, i/4) // the upper end of the bucket
			return time.Duration(min(us, float64(math.MaxInt64/1000))) * time.Microsecond
		}
	}
	return 0
}

// counted is what was counted of one operation.
type counted struct {
	N    Tally  `json:"n"`
	Run  Spread `json:"run,omitempty"`
	Wait Spread `json:"wait,omitempty"`
	Age  Spread `json:"age,omitempty"`
}

func newCounted() *counted { return &counted{Run: Spread{}, Wait: Spread{}, Age: Spread{}} }

func (c *counted) merge(o *counted) {
	c.N.Add(o.N)
	c.Run.merge(o.Run)
	c.Wait.merge(o.Wait)
	c.Age.merge(o.Age)
}

// maxMetered is how many operations have counters of their own; the rest are otherOperations.
const maxMetered, otherOperations = 200, "_other"

// counts are counters by operation.
type counts map[string]*counted

func (c counts) of(name string) *counted {
	if o := c[name]; o != nil {
		return o
	}
	if len(c) >= maxMetered || name == "" {
		name = otherOperations
	}
	o := c[name]
	if o == nil {
		o = newCounted()
		c[name] = o
	}
	return o
}

func (c counts) merge(o counts) {
	for name, one := range o {
		if one != nil {
			c.of(name).merge(one)
		}
	}
}
