package crashtest_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/idempo/idempo/internal/crashtest"
)

func TestTally(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT46] less than stated, nothing of a kind, or nothing stated: void", func(t *testing.T) {
		t.Parallel()
		var c crashtest.Tally
		if c.Void() == nil {
			t.Error("a run that states nothing is not void")
		}
		c.Least("kills", 2)
		c.Least("kills", 1)
		c.Least("replays", 0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { c.Add("kills", 1) })
		}
		wg.Wait()
		if err := c.Void(); err == nil || err.Error() != "void run: replays 0 of at least 1" {
			t.Error(err)
		}
		c.Add("replays", 2)
		if err := c.Void(); err != nil {
			t.Error(err)
		}
		c.Least("kills", 1)
		if err := c.Void(); err == nil || err.Error() != "void run: kills 3 of at least 4" {
			t.Error(err)
		}
		if got := c.String(); got != "kills 3, replays 2" {
			t.Error(got)
		}
	})
	t.Run("the table", func(t *testing.T) {
		t.Parallel()
		b := &crashtest.Row{Store: "s", Guard: "g", Step: "CT2", Name: "second", Kills: 4}
		b.Effects.Add("1", 2)
		b.Effects.Add("2", 1)
		b.Verdicts.Add("run", 3)
		a := &crashtest.Row{Store: "s", Guard: "g", Step: "CT1", Name: "first", Kills: 1}
		a.Effects.Add("0", 1)
		a.Verdicts.Add("in_doubt", 1)
		var out strings.Builder
		if err := crashtest.WriteTable(&out, []*crashtest.Row{b, a}); err != nil {
			t.Fatal(err)
		}
		want := `
store  guard  step  kills  E=0  E=1  E>1  wrong  final answer of the retries  killed
s      g      CT1   1      1    0    0    0      in_doubt 1                   first
s      g      CT2   4      0    2    1    1      run 3                        second
`
		if got := "\n" + out.String(); got != want {
			t.Error(got)
		}
	})
}
