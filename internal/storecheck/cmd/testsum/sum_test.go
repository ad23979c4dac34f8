package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The report of a real go test run over a small module that passes, fails, skips, panics and does not build.
func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample.test/sample\n\ngo 1.26.0\n",
		"good/good_test.go": `package good
import "testing"
func TestOne(t *testing.T) {}
func TestTree(t *testing.T) {
	t.Run("leaf a", func(t *testing.T) {})
	t.Run("leaf b/deep", func(t *testing.T) { t.Skip("no server on the PATH") })
}
func TestLater(t *testing.T) { t.Log("said before"); t.Skip("set SAMPLE_DSN") }
`,
		"bad/bad_test.go": `package bad
import "testing"
func TestTree(t *testing.T) {
	t.Run("leaf [a/b]", func(t *testing.T) { t.Error("two is not three") })
	t.Run("fine", func(t *testing.T) {})
}
`,
		"broken/broken_test.go": "package broken\nimport \"testing\"\nfunc TestX(t *testing.T) { undefined() }\n",
		"hangs/hangs_test.go":   "package hangs\nimport \"testing\"\nfunc TestHang(t *testing.T) { t.Run(\"leaf\", func(t *testing.T) { <-t.Context().Done() }) }\n",
		"dies/dies_test.go":     "package dies\nimport (\"os\"; \"testing\")\nfunc TestMain(*testing.M) { os.Exit(3) }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-timeout=3s", "./...")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	events, _ := cmd.Output() // it fails: that is the sample
	var out bytes.Buffer
	s, err := read(bytes.NewReader(events), &out)
	if err != nil {
		t.Fatal(err)
	}
	s.print(&out)
	got := out.String()
	for _, want := range []string{
		"ok    sample.test/sample/good", "FAIL  sample.test/sample/bad", "two is not three", "undefined: undefined",
		"FAIL  sample.test/sample/broken", "FAIL  sample.test/sample/dies",
		"did not end: TestHang/leaf\npanic: test timed out", "FAIL  sample.test/sample/hangs",
		"skipped: sample.test/sample/good TestTree/leaf_b/deep: no server on the PATH\n",
		"skipped: sample.test/sample/good TestLater: set SAMPLE_DSN\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if n := strings.Count(got, "did not end"); n != 2 {
		t.Errorf("%d tests that did not end", n)
	}
	if !strings.HasSuffix(got, "\n3 passed, 4 failed, 2 skipped\n") {
		t.Error("the counts are wrong")
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	ok := func(want string, output ...string) {
		t.Helper()
		if got := reason(output); got != want {
			t.Errorf("reason(%q) = %q, want %q", output, got, want)
		}
	}
	ok("no server", "    x_test.go:7: no server\n", "--- SKIP: TestX (0.00s)\n")
	ok("a: b", "    x_test.go:7: a: b\n")
	ok("plain words", "plain words\n")
	ok("no reason given", "--- SKIP: TestX (0.00s)\n")
	ok("no reason given")
}

func TestLongLinesAreCut(t *testing.T) {
	t.Parallel()
	if got := short("fits\n"); got != "fits\n" {
		t.Errorf("%q", got)
	}
	got := short(strings.Repeat("é", 500) + "\n")
	if len(got) > 640 || !strings.HasSuffix(got, "é… (1001 bytes)\n") {
		t.Errorf("%q", got)
	}
}

func TestPlainComplaintsPassThrough(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s, err := read(strings.NewReader("go: no such module\n"), &out)
	if err != nil || out.String() != "go: no such module\n" || s.failed != 0 {
		t.Errorf("%q %v %+v", out.String(), err, s)
	}
}
