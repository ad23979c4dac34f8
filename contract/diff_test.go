package contract_test

import (
	"strings"
	"testing"

	"github.com/idempo/idempo/contract"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	good := compact(goodPretty)
	t.Run("[operations/CD9] what breaks a caller, what does not, and what is only spelled differently", func(t *testing.T) {
		diff := func(from, to string) []contract.Change { return contract.Diff(load(t, doc(from)), load(t, doc(to))) }
		change := func(a, b string) []contract.Change {
			t.Helper()
			to := strings.Replace(good, a, b, 1)
			if to == good {
				t.Fatalf("void: %s", a)
			}
			return diff(good, to)
		}
		breaking := func(a, b, why string) {
			t.Helper()
			if c := change(a, b); len(c) != 1 || !c[0].Breaking || !strings.Contains(c[0].String(), why) {
				t.Errorf("%s → %s: %v", a, b, c)
			}
		}
		fine := func(a, b, why string) {
			t.Helper()
			if c := change(a, b); len(c) != 1 || c[0].Breaking || !strings.Contains(c[0].String(), why) {
				t.Errorf("%s → %s: %v", a, b, c)
			}
		}
		same := func(a, b string) {
			t.Helper()
			if c := change(a, b); len(c) != 0 {
				t.Errorf("%s → %s: %v", a, b, c)
			}
		}
		breaking(`"PT24H"`, `"PT23H"`, "retention is shorter")
		breaking(`"status":422`, `"status":409`, "mismatch.status changed")
		breaking(`["tenant","key"]`, `["key"]`, "keyedBy changed")
		breaking(`["2XX"]`, `["2XX","4XX"]`, "replayed.statuses changed")
		breaking(`"header":"Idempotent-Replayed"`, `"header":"Replayed"`, "replayed.marker.header changed")
		breaking(`,"maxLength":36},"keyedBy"`, `,"maxLength":20},"keyedBy"`, "the longest key changed")
		if c := change(`,"marker":{"header":"Idempotent-Replayed","value":"true"}`, ``); len(c) != 2 || !c[0].Breaking {
			t.Errorf("the marker is removed: %v", c)
		}
		fine(`"PT24H"`, `"P7D"`, "retention is longer")
		fine(`"retention"`, `"guard":"leased","retention"`, "the guard changed")
		fine(`"retention"`, `"tombstone":"P10D","retention"`, "tombstone is longer")
		fine(`"mismatch":{"status":422}`, `"mismatch":{"status":422,"ignores":["/at"]}`, "what does not count")
		same(`"PT24H"`, `"P1D"`)
		same(`["tenant","key"]`, `["key","tenant"]`)
		same(`"header":"Idempotent-Replayed"`, `"header":"idempotent-replayed"`)
		same(`"statuses":["2XX"]`, `"statuses":["2xx"]`)

		atomic := strings.Replace(good, `"retention"`, `"guard":"atomic","retention"`, 1)
		if c := diff(atomic, strings.Replace(atomic, "atomic", "leased", 1)); len(c) != 1 || !c[0].Breaking || !strings.Contains(c[0].String(), "the guard changed: atomic is now leased") {
			t.Error(c)
		}
		optional := strings.ReplaceAll(good, `"required":true`, `"required":false`)
		if c := diff(optional, good); len(c) != 1 || !c[0].Breaking || c[0].Member != "key.required" {
			t.Error(c)
		}
		if c := diff(good, `{}`); len(c) != 1 || !c[0].Breaking || c[0].Why != "the key is gone" {
			t.Error(c)
		}
		none := `{"openapi":"3.1.0","paths":{}}`
		if c := contract.Diff(load(t, doc(good)), load(t, none)); len(c) != 1 || !c[0].Breaking || c[0].Why != "the operation is gone" {
			t.Error(c)
		}
		if c := contract.Diff(load(t, none), load(t, doc(optional))); len(c) != 1 || c[0].Breaking {
			t.Errorf("a new operation: %v", c)
		}
		tombstone := strings.Replace(good, `"retention"`, `"tombstone":"P10D","retention"`, 1)
		if c := diff(tombstone, strings.Replace(tombstone, "P10D", "P9D", 1)); len(c) != 1 || !c[0].Breaking {
			t.Error(c)
		}
	})
	t.Run("messages", func(t *testing.T) {
		async := func(x string) *contract.Document {
			return load(t, `{"asyncapi":"3.0.0","operations":{"r":{"action":"receive","x-idempotency":`+x+`}}}`)
		}
		if c := contract.Diff(async(`{"id":{"in":"header","name":"Id"},"retention":"P2D"}`), async(`{"id":{"in":"header","name":"id"},"retention":"P1D"}`)); len(c) != 1 || !c[0].Breaking || c[0].Where != "r" {
			t.Error(c)
		}
	})
}
