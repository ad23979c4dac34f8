package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestManual(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP12] a manual page of every command, from the one table", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.want(0, "", "", "help", "--man", "man1")
		files, err := filepath.Glob(filepath.Join(s.dir, "man1", "*.1"))
		if err != nil || len(files) != len(everyCommand()) {
			t.Fatalf("%d pages for %d commands, %v", len(files), len(everyCommand()), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil || !strings.HasPrefix(string(text), ".TH IDEMPO") || !strings.Contains(string(text), ".SH EXIT STATUS\n.TP\n.B 0\n") {
				t.Errorf("%s: %v\n%s", f, err, text)
			}
			tool, err := exec.LookPath("groff")
			if err != nil {
				continue
			}
			if out, err := exec.Command(tool, "-man", "-Tutf8", "-ww", "-z", f).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v %s", f, err, out)
			}
		}
		page, err := os.ReadFile(filepath.Join(s.dir, "man1", "idempo-version.1"))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "man-version", string(page))
	})
	t.Run("[operations/OP12] the guide has every command and flag", func(t *testing.T) {
		t.Parallel()
		const head = "# Commands\n\nWhat the binary can do, made from its own table: `idempo help COMMAND` says the same, `idempo help --man DIR` writes it as manual pages.\n" +
			"[Errors of the command line](command-errors.md) lists codes and exit codes, [operating](operating.md) says when to use what.\n"
		want := head + commandTable(everyCommand()[0])
		const page = "../../../../docs/guides/commands.md"
		if *update {
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(page)
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the command table says (go test ./internal/cli -update): %v", page, err)
		}
	})
	t.Run("nothing in a text is a command of roff", func(t *testing.T) {
		t.Parallel()
		for in, want := range map[string]string{".x": `\&.x`, "'x": `\&'x`, "a-b": `a\-b`, `a\b`: `a\eb`, "a\n.b": "a\n\\&.b", "": "", "a…": `a\[u2026]`} {
			if got := roff(in); got != want {
				t.Errorf("%q is %q, want %q", in, got, want)
			}
		}
	})
}
