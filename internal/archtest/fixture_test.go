package archtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idempo/idempo/internal/archtest"
)

// Each file under testdata is a small tree that breaks rules, and a list of the findings it must give. A tree is written
// as "-- name --" lines with the file's text below; "policy" holds its table, "want" one finding a line, of which each
// word must occur. All findings must be wanted, and all that are wanted found.
func TestFixtures(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("no fixtures", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			parts := unpack(string(text))
			dir := t.TempDir()
			for file, content := range parts {
				write(t, filepath.Join(dir, file), content)
			}
			compare(t, checkAll(t, dir, parts["policy"]), parts["want"])
		})
	}
}

func unpack(text string) map[string]string {
	parts := map[string]string{}
	name := ""
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(line, " --\n") {
			name = strings.TrimSuffix(rest, " --\n")
			continue
		}
		if name != "" {
			parts[name] += line
		}
	}
	return parts
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkAll runs every check on the tree under dir.
func checkAll(t *testing.T, dir, table string) []archtest.Finding {
	t.Helper()
	tree, err := archtest.Open(t.Context(), dir)
	if err != nil {
		return []archtest.Finding{{Rule: "open", Text: err.Error()}}
	}
	policy, err := archtest.ParsePolicy(table)
	if err != nil {
		t.Fatal(err)
	}
	source, err := tree.ReadSource(policy)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := source.CheckClaims(dir)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := archtest.CheckKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := append(tree.CheckImports(policy), source.CheckBudgets()...)
	all = append(all, source.CheckSecrets()...)
	return append(append(all, claims...), keys...)
}

func compare(t *testing.T, found []archtest.Finding, want string) {
	t.Helper()
	used := make([]bool, len(found))
	for line := range strings.Lines(want) {
		hit := false
		for i, f := range found {
			if !used[i] && hasAll(f.String(), strings.Fields(line)) {
				used[i], hit = true, true
				break
			}
		}
		if !hit {
			t.Errorf("not found: %s", line)
		}
	}
	for i, f := range found {
		if !used[i] {
			t.Errorf("found, but not wanted: %s", f)
		}
	}
}

func hasAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func TestFixturesReachEveryRule(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var wants strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		wants.WriteString(unpack(string(b))["want"])
	}
	for _, rule := range []string{"a", "b", "c", "d", "e", "f", "g", "list", "open", "size", "names", "interface", "comment", "doc.go", "init",
		"variable", "nolint", "skip", "compare", "unsafe", "rand", "primitive", "claim", "key"} {
		if !strings.Contains(wants.String(), "rule "+rule+":") {
			t.Errorf("no fixture breaks rule %s", rule)
		}
	}
}
