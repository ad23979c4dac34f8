package archtest_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/idempo/idempo/internal/archtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const repository = "../.."

// house reads this repository once for all tests.
var house = sync.OnceValues(func() (*archtest.Tree, error) {
	return archtest.Open(context.Background(), repository)
})

func open(t *testing.T) (*archtest.Tree, archtest.Policy, *archtest.Source) {
	t.Helper()
	tree, err := house()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := archtest.ParsePolicy(archtest.Table())
	if err != nil {
		t.Fatal(err)
	}
	source, err := tree.ReadSource(policy)
	if err != nil {
		t.Fatal(err)
	}
	return tree, policy, source
}

func report(t *testing.T, found []archtest.Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

func TestImportPolicy(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC81] the root requires nothing, the rest is pinned, and imports go inwards", func(t *testing.T) {
		tree, policy, _ := open(t)
		report(t, tree.CheckImports(policy))
	})
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	_, _, source := open(t)
	report(t, source.CheckBudgets())
	m := source.Measure()
	t.Log(m)
	report(t, m.Check())
}

func TestSecretsInSource(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC33, SEC81] constant-time comparison, no unsafe, no cgo, no math/rand near a secret", func(t *testing.T) {
		_, _, source := open(t)
		report(t, source.CheckSecrets())
	})
}

func TestNoKeyIsCommitted(t *testing.T) {
	t.Parallel()
	found, err := archtest.CheckKeys(repository)
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestClaims(t *testing.T) {
	t.Parallel()
	_, _, source := open(t)
	found, err := source.CheckClaims(repository)
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestLinkedModules(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC81] what the binary links is a reviewed list with licences", func(t *testing.T) {
		tree, _, _ := open(t)
		lines, err := tree.LinkedModules(t.Context(), "cmd/idempo")
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join(repository, "cmd", "idempo", "deps.txt")
		if *update {
			if err := os.WriteFile(golden, []byte(strings.Join(append(lines, ""), "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(strings.Split(string(b), "\n"), func(l string) bool { return l == "" })
		for _, l := range lines {
			if !slices.Contains(want, l) {
				t.Errorf("cmd/idempo links %s, which cmd/idempo/deps.txt does not list; look at it, then run make verify", l)
			}
			if strings.HasSuffix(l, " unknown") {
				t.Errorf("%s: the licence is not known", l)
			}
		}
		for _, w := range want {
			if !slices.Contains(lines, w) {
				t.Errorf("cmd/idempo/deps.txt lists %s, which cmd/idempo does not link; run make verify", w)
			}
		}
	})
}

func TestSecurityPages(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC83] SECURITY.md says versions, report path and what counts; the threat model has rows and tests", func(t *testing.T) {
		policy, err := os.ReadFile(filepath.Join(repository, "SECURITY.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, heading := range []string{"## Supported versions", "## Reporting", "## What counts"} {
			if !strings.Contains(string(policy), heading+"\n\n") {
				t.Errorf("SECURITY.md has no %q", heading)
			}
		}
		model, err := os.ReadFile(filepath.Join(repository, "docs", "threat-model.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, adversary := range []string{"another tenant", "caller with valid credentials", "network client without credentials",
			"reader of database", "writer of the database", "webhook sender", "operator with a lesser role"} {
			_, rest, found := strings.Cut(string(model), "\n| "+adversary)
			line, _, _ := strings.Cut(rest, "\n")
			if !found || !strings.Contains(line, "SEC") || !strings.Contains(line, "[test: ") && !strings.Contains(line, "not in this version: ") {
				t.Errorf("docs/threat-model.md names no rows and tests for %q", adversary)
			}
		}
	})
}
