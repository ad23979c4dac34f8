package main

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Every measure runs, for a moment. What is a count is held to its bar here too; what is a rate is only looked at for being
// one, since a test asserts no elapsed time: `make bench` prints those beside their bars.
func TestEveryMeasureRuns(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), dsn())
	if err == nil {
		err = pool.Ping(t.Context())
		pool.Close()
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no PostgreSQL: %v", err)
		}
		t.Skip("no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one on 127.0.0.1:5432")
	}
	s := settings{rounds: 1, each: 40 * time.Millisecond, n: new(atomic.Int64), records: 2000}
	seen := map[string]bool{}
	for _, m := range measures() {
		if m.id == "P53" && testing.Short() {
			continue
		}
		results, err := m.run(t.Context(), s)
		if err != nil {
			t.Errorf("%s: %v", m.id, err)
			continue
		}
		for _, r := range results {
			for id := range strings.FieldsSeq(r.id) {
				seen[id] = true
			}
			if r.bar != "0" && r.unit == "" && r.value <= 0 { // a rate
				t.Errorf("%s: %s is %v", r.id, r.what, r.value)
			}
			if counted(r) && !r.met {
				t.Errorf("%s: %s is %.4g %s, bar %s", r.id, r.what, r.value, r.unit, r.bar)
			}
		}
	}
	for _, row := range []struct{ cite, id string }{
		{"[stores/E33] a replay is one flight without transaction or log", "E33"}, {"[stores/E34] replays beside a SELECT", "E34"},
		{"[stores/E35] [http/H50] an atomic call beside the plain transaction", "E35"}, {"[stores/E36] a leased call beside two commits", "E36"},
		{"[stores/E37] [http/P52] claims that share commits", "E37"}, {"[stores/E40] bytes of a record", "E40"},
		{"[http/H51] no flight is added", "H51"}, {"[http/H52] a replay beside the transaction", "H52"}, {"[http/H53] allocations", "H53"},
		{"[http/P50] replays of the gateway beside a proxy", "P50"}, {"[http/P51] pass-through beside a proxy", "P51"}, {"[http/P53] memory", "P53"},
		{"[stores/E30] claims in a store that has grown", "E30"}, {"[stores/E31] a key beside a crowd at another", "E31"}, {"[stores/E32] claims beside a sweep", "E32"},
		{"[stores/E38] waiters", "E38"}, {"[stores/E39] running claims", "E39"},
		{"[security/SEC47] [security/SEC90] a tenant beside one that floods", "SEC90"}, {"[security/SEC91] encryption", "SEC91"},
		{"[messages/I37] [messages/I38] an inbox beside a guard by hand", "I37"}, {"[webhooks/W52] verifying beside the bare HMAC", "W52"}, {"[security/SEC92] quotas", "SEC92"}, {"[security/SEC94] two digest keys", "SEC94"},
	} {
		t.Run(row.cite, func(t *testing.T) {
			if !seen[row.id] && !(row.id == "P53" && testing.Short()) {
				t.Errorf("%s was not measured", row.id)
			}
		})
	}
}

// counted says whether a result is a count that does not depend on the machine's speed.
func counted(r result) bool {
	return r.id == "H51" || r.id == "E33" || r.id == "H53" || r.id == "SEC92" && r.unit != "" || (r.id == "E40" || r.id == "W52") && r.unit != ""
}

func TestMedianAndRatio(t *testing.T) {
	t.Parallel()
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median %v", m)
	}
	if r := ratio([]float64{2, 6, 100}, []float64{1, 2, 1}); r != 3 {
		t.Errorf("the median of the rounds' ratios is 3, got %v", r)
	}
}

func TestRowSaysWhatWasNotMet(t *testing.T) {
	t.Parallel()
	r := result{id: "E35", what: "x", value: 0.5, bar: "≥ 0.55"}
	if row := r.row(); !strings.Contains(row, "**not met**") || !strings.Contains(row, "0.50") {
		t.Error(row)
	}
}
