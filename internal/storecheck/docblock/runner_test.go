//go:build unix

package docblock

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runPage(t *testing.T, text string) (dir string, errs []error) {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	r, err := NewRunner(t.TempDir(), dir, append(os.Environ(), "GREETING=hello"), p)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	for _, b := range p.Blocks {
		if err := r.Run(t.Context(), b); err != nil {
			errs = append(errs, err)
		}
	}
	return dir, errs
}

func TestRunnerRunsWhatAReaderTypes(t *testing.T) {
	t.Parallel()
	dir, errs := runPage(t, `<!-- ports: 8080 -->
<!-- file: in.txt -->
`+"```text\nport 8080\n```\n```sh\ncat in.txt; echo $GREETING\n```\n<!-- output -->\n```text\nport 8080\nhello\n```\n"+
		"<!-- run, exit 4 -->\n```sh\nexit 4\n```\n"+
		"<!-- start until: ready on 8080 -->\n```sh\ntrap 'echo bye > bye.txt; exit' TERM\necho ready on 8080\nsleep 600 & wait\n```\n"+
		"<!-- run in root -->\n```sh\ntest ! -e in.txt\n```\n")
	for _, err := range errs {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "in.txt")); err != nil || strings.Contains(string(b), "8080") {
		t.Errorf("the port of the page was used: %s %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "bye.txt")); err != nil {
		t.Errorf("what was started was not asked to end, and waited for: %v", err)
	}
}

func TestRunnerSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	bad := func(text, why string) {
		t.Helper()
		if _, errs := runPage(t, text); len(errs) != 1 || !strings.Contains(errs[0].Error(), why) {
			t.Errorf("%q: %v, want %q", text, errs, why)
		}
	}
	bad("```sh\nfalse\n```\n", "want exit code 0")
	bad("```sh\nfalse | true\n```\n", "want exit code 0")
	bad("```sh\necho $UNSET_NAME\n```\n", "unbound variable")
	bad("<!-- run, exit 2 -->\n```sh\ntrue\n```\n", "want exit code 2")
	bad("```sh\necho two\n```\n<!-- output -->\n```text\nthree\n```\n", "the page shows:\nthree")
	bad("<!-- start until: ready -->\n```sh\necho no; exit 1\n```\n", "before it printed")
}

func TestRunnerGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	p, err := Parse("<!-- start until: never said -->\n```sh\nsleep 600\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(".", t.TempDir(), os.Environ(), p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx, p.Blocks[0]); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("%v", err)
	}
}
