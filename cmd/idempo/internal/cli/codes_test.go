package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryCodeHasItsAnchor: messages link to the section of their code, so each must be there, and none may be left over.
func TestEveryCodeHasItsAnchor(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/guides/" + filepath.Base(docsURL))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## ([a-z_]+)$`).FindAllStringSubmatch(string(page), -1) {
		sections[m[1]] = false
	}
	code := regexp.MustCompile(`\b[cC]ode(?:: +| += |[A-Z][A-Za-z]+ += )"([a-z_]+)"`)
	for _, dir := range []string{".", "../server", "../database", "../../../../operator"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range code.FindAllStringSubmatch(string(text), -1) {
				if _, ok := sections[m[1]]; !ok {
					t.Errorf("%s: no section ## %s", file, m[1])
				}
				sections[m[1]] = true
			}
		}
	}
	for name, used := range sections {
		if !used {
			t.Errorf("section ## %s is of no code", name)
		}
	}
	for _, n := range []int{exitOK, exitNo, exitWarnings, exitUnreachable, exitBusy, exitUnsafe, exitUsage, exitInterrupted, exitPipe} {
		if exitMeaning(n) == "" {
			t.Errorf("exit code %d has no meaning", n)
		}
	}
}
