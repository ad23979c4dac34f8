package dashboard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// counted is a dashboard with a meter of its own, and with that of another process over the same store; nil: there is no store.
func counted(t *testing.T, shared idempo.Store) (b *bed, own, other *operator.Meter) {
	t.Helper()
	other = operator.NewMeter(operator.MeterConfig{Store: shared})
	b = newBed(t, func(c *dashboard.Config) {
		c.Operations = func() []idempo.Operation {
			return []idempo.Operation{{Name: "pay", Guard: idempo.GuardLeased, Retention: 24 * time.Hour}, {Name: "ship", Guard: idempo.GuardLeased, Retention: 24 * time.Hour}}
		}
		own = operator.NewMeter(operator.MeterConfig{Store: shared})
		c.Meter = own
	})
	return b, own, other
}

func tell(m *operator.Meter, n int, e idempo.Event) {
	e.Kind = "begin"
	for range n {
		m.Observe(context.Background(), e)
	}
}

func TestMeasuredPages(t *testing.T) {
	t.Parallel()
	shows := func(t *testing.T, body string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("no %q in\n%s", w, body)
			}
		}
	}
	t.Run("the overview shows an hour, a day and thirty days, each with its table", func(t *testing.T) {
		t.Parallel()
		b, own, _ := counted(t, nil)
		tell(own, 1234, idempo.Event{Operation: "pay", Verdict: "run"})
		tell(own, 7, idempo.Event{Operation: "pay", Verdict: "replay", Age: time.Hour})
		for window, want := range map[string]string{"": "an hour ago", "hour": "30 minutes", "day": "24 hours ago", "month": "30 days ago", "nonsense": "an hour ago"} {
			body := b.page("/?window=" + window)
			shows(t, body, want, "1,234", `<rect class="f-run"`, `<rect class="f-replay"`, "of this process alone", `aria-current="true"`, `<caption class="sr">Calls, by `)
		}
	})
	t.Run("what other processes have counted is in it, also when they have ended or the store is away", func(t *testing.T) {
		t.Parallel()
		shared := memstore.New(memstore.Options{})
		b, own, other := counted(t, shared)
		tell(other, 5000, idempo.Event{Operation: "pay", Verdict: "run"})
		if err := other.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		tell(own, 11, idempo.Event{Operation: "pay", Verdict: "run"})
		shows(t, b.page("/?window=day"), "over all processes: 2 have counted in this time", "5,011")
	})
	t.Run("the adviser says where the retention is too short", func(t *testing.T) {
		t.Parallel()
		b, own, _ := counted(t, nil)
		tell(own, 40, idempo.Event{Operation: "pay", Verdict: "replay", Age: 23 * time.Hour})
		tell(own, 40, idempo.Event{Operation: "ship", Verdict: "replay", Age: time.Minute})
		tell(own, 2, idempo.Event{Operation: "pay", Verdict: "expired"})
		body := b.page("/?window=month")
		shows(t, body, "Is the retention long enough?", "<b>Too short.</b>", "2 calls came when the answer was gone", "Long enough.")
	})
	t.Run("mismatches: counts by operation, the latest with what differs, never a value", func(t *testing.T) {
		t.Parallel()
		b, own, _ := counted(t, nil)
		tell(own, 3, idempo.Event{Operation: "pay", Verdict: "mismatch", KeyRef: "k_" + strings.Repeat("a", 26), Tenant: "acme"})
		own.Observe(t.Context(), idempo.Event{Kind: "differs", Operation: "pay", KeyRef: "k_" + strings.Repeat("a", 26), Members: []string{"body", "/<amount>"}})
		tell(own, 1, idempo.Event{Operation: "ship", Verdict: "mismatch", KeyRef: "k_" + strings.Repeat("b", 26), Tenant: "globex"})
		tell(own, 5, idempo.Event{Operation: "ship", Verdict: "run"})
		body := b.page("/mismatches?window=day")
		shows(t, body, "<h1>Mismatches</h1>", "acme", "globex", "<code>body</code>", "<code>/&lt;amount&gt;</code>", "/keys/k_aaaa", "17 %", "the operation keeps no digests of members")
		b.be(as(operator.RoleViewer, "globex"))
		body = b.page("/mismatches")
		if strings.Contains(body, "acme") || strings.Contains(body, "By operation") || !strings.Contains(body, "globex") {
			t.Errorf("a principal of one tenant sees\n%s", body)
		}
	})
	t.Run("a thousand mismatches are one page", func(t *testing.T) {
		t.Parallel()
		b, own, _ := counted(t, nil)
		for i := range 1500 {
			tell(own, 1, idempo.Event{Operation: "pay", Verdict: "mismatch", KeyRef: fmt.Sprintf("k_%026d", i), Tenant: "acme"})
		}
		if n := strings.Count(b.page("/mismatches"), `data-name="Tenant"`); n != 1000 {
			t.Errorf("%d rows", n)
		}
	})
}
