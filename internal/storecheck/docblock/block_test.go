package docblock

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	p, err := Parse("# Page\n<!-- ports: 8080 9000 -->\n<!-- an old remark -->\nwords\n```yaml\na: 1\n```\n" +
		"<!-- run in root, exit 3 -->\n\n```bash\nfalse\n```\nprints\n<!-- output -->\n```text\nno\n```\n" +
		"<!-- same as: a/b.go#x -->\n```go\nx()\n```\n```sh\ntrue\n```\n<!-- file: c.yaml -->\n```yaml\nb: 2\n```\n" +
		"<!-- shown only: needs the moon -->\n```sh\nfly\n```\n<!-- start until: ready: now -->\n```sh\nserve\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(p.Ports, " ") != "8080 9000" {
		t.Errorf("ports %q", p.Ports)
	}
	want := []struct {
		do   Do
		arg  string
		text string
		line int
	}{
		{DoNothing, "", "a: 1\n", 5},
		{DoRoot, "", "false\n", 10},
		{DoOutput, "", "no\n", 15},
		{DoCopy, "a/b.go#x", "x()\n", 19},
		{DoRun, "", "true\n", 22},
		{DoFile, "c.yaml", "b: 2\n", 26},
		{DoShow, "needs the moon", "fly\n", 30},
		{DoStart, "ready: now", "serve\n", 34},
	}
	if len(p.Blocks) != len(want) {
		t.Fatalf("%d blocks, want %d", len(p.Blocks), len(want))
	}
	for i, w := range want {
		b := p.Blocks[i]
		if b.Do != w.do || b.Arg != w.arg || b.Text != w.text || b.Line != w.line {
			t.Errorf("block %d: %+v, want %+v", i, *b, w)
		}
	}
	if b := p.Blocks[1]; b.Exit != 3 || b.Want != p.Blocks[2] {
		t.Errorf("the command has exit %d and output %v", b.Exit, b.Want)
	}
	if got := p.Replace(p.Blocks[3], "y()\nz()\n"); !strings.Contains(got, "```go\ny()\nz()\n```\n```sh\ntrue") || strings.Contains(got, "x()") {
		t.Errorf("replaced:\n%s", got)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	bad := func(text, why string) {
		t.Helper()
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("Parse(%q): %v, want %q", text, err, why)
		}
	}
	bad("a\n```go\nx\n```\n", "line 2: a Go block needs")
	bad("```sh\nx\n", "not closed")
	bad("<!-- rnu -->\n```sh\nx\n```\n", `no word "rnu"`)
	bad("<!-- shown only -->\n```sh\nx\n```\n", "after a colon")
	bad("<!-- run -->\n```yaml\nx\n```\n", "only sh blocks")
	bad("<!-- output -->\n```text\nx\n```\n", "follows no command")
	bad("<!-- run, exit x -->\n```sh\nx\n```\n", "exit code")
}

func TestRegion(t *testing.T) {
	t.Parallel()
	source := "package x\n\nfunc f() {\n\t// region: a\n\tif x {\n\n\t\ty()\n\t}\n\t// end: a\n\tz()\n}\n// region: open\n"
	if got, err := Region(source, "a"); err != nil || got != "if x {\n\n\ty()\n}\n" {
		t.Errorf("%q %v", got, err)
	}
	if got, err := Region(source, ""); err != nil || got != source {
		t.Errorf("whole: %q %v", got, err)
	}
	for _, name := range []string{"b", "open"} {
		if _, err := Region(source, name); err == nil {
			t.Errorf("region %s was found", name)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	ok := func(shown, printed string) {
		t.Helper()
		if !Matches(shown, printed) {
			t.Errorf("%q does not match %q", printed, shown)
		}
	}
	bad := func(shown, printed string) {
		t.Helper()
		if Matches(shown, printed) {
			t.Errorf("%q matches %q", printed, shown)
		}
	}
	ok("a\n", "a")
	ok("a  \nb\n\n", "a\nb\n")
	ok("", "\n")
	ok("took … ms", "took 12 ms\n")
	ok("a\n…\nz\n", "a\nb\nc\nz\n")
	ok("a\n…\nz\n", "a\nz\n")
	ok("(x) [y]*", "(x) [y]*")
	bad("a", "b")
	bad("a", "a\nb")
	bad("a\nb", "a")
	bad("took … ms", "took\n12 ms")
	bad("", "a")
	bad("a.c", "abc")
}
