package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	claimed = regexp.MustCompile(`\[test: ([^\]]+)\]`)
	planted = regexp.MustCompile("\\| `([^`]+)` \\|$")
	broken  = regexp.MustCompile(`(?m)^\s*(?:return sabotage)?\{"((?:[^"\\]|\\.)+)", "`)
)

// listed are bugs that the page must name.
func listed() []string {
	return []string{"river#446", "deduplicator.go", "powertools-python#8049", "medusa#1887", "idempot-js#181", "Truxify#6898", "TablePro#2765",
		"watermill#576", "rust-postgres#1342", "evc-team-relay#115"}
}

func read(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(filepath.Clean(filepath.Join(root, name)))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// A reproducer that is always green would pass with its bug planted again; that it does not is what TestMutants and
// TestKitAgainstItself show. So each row must name a mutant and the test that kills it, or a sabotage of the kit.
func TestTrackRecord(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/track-record.md")
	killers := map[string]string{} // by rule: the test, as documents name it
	for _, m := range mutants() {
		pkg := strings.TrimPrefix(m.killer.pkg, "./")
		if pkg == "." {
			pkg = "idempo"
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(m.killer.run, "^"), "$")
		killers[m.rule] = pkg + "." + name
	}
	for _, m := range broken.FindAllStringSubmatch(read(t, "storetest/sabotages_test.go", "storetest/txsabotages_test.go"), -1) {
		killers[m[1]] = "storetest.TestKitAgainstItself"
	}
	if len(killers) < 50 {
		t.Fatalf("void run: %d planted bugs are known", len(killers))
	}
	rows := 0
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| bug ") {
			continue
		}
		rows++
		bug, _, _ := strings.Cut(line[2:], " | ")
		t.Run("[stores/CT49] "+bug, func(t *testing.T) {
			test, rule := claimed.FindStringSubmatch(line), planted.FindStringSubmatch(line)
			switch {
			case test == nil || rule == nil:
				t.Error("the row names no reproducer, or not how the bug is planted again")
			case killers[rule[1]] == "":
				t.Errorf("no mutant and no sabotage is called %q: the reproducer may be always green", rule[1])
			case killers[rule[1]] != test[1]:
				t.Errorf("%q is noticed by %s, the row names %s", rule[1], killers[rule[1]], test[1])
			}
		})
	}
	if rows < 8 {
		t.Errorf("%d rows", rows)
	}
	for _, bug := range listed() {
		if !strings.Contains(page, bug) {
			t.Errorf("[stores/CT49] the page does not name %s", bug)
		}
	}
}
