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

func TestCompletionOfNames(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP12] names of operations come from the store; whatever is wrong with it, nothing is printed", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		complete := func(store, flag, prefix string) []string {
			t.Helper()
			r := s.run("__complete", "keys", "list", "--store", store, flag, prefix)
			if r.code != 0 || strings.Contains(r.err, "idempo:") || strings.Contains(r.err, "warning") {
				t.Errorf("%s %s: %+v", flag, store, r)
			}
			return strings.Fields(r.out)
		}
		want := func(got []string, words ...string) {
			t.Helper()
			if strings.Join(got, " ") != strings.Join(append(words, ":4"), " ") {
				t.Errorf("%q, want %q", got, words)
			}
		}
		want(complete("idempo.db", "--operation", ""), "pay", "ship")
		want(complete("idempo.db", "--operation", "sh"), "ship")
		want(complete("none.db", "--operation", ""))
		want(complete("postgres://u:canary@127.0.0.1:1/d", "--operation", ""))
		want(complete("idempo.db", "--state", ""), "issued", "pending", "completed", "failed", "in_doubt", "expired")
	})
}
