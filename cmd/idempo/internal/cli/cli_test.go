package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite golden files")

// buffer is a bytes.Buffer that may be read while a command writes to it.
type buffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{} // closed by the next write
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.b.Write(p)
}

// next returns what was written so far, and a channel that is closed when more comes.
func (b *buffer) next() (string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.b.String(), b.changed
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// shell runs command lines in a folder of its own, like a user without any configuration.
type shell struct {
	t   *testing.T
	dir string
	env []string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	dir, err := os.MkdirTemp("", "idempo-cli-") // t.TempDir has the test's name in it, commas and all
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &shell{t: t, dir: dir, env: []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "IDEMPO_DATA_DIR=" + filepath.Join(dir, "data")}}
}

type result struct {
	code     int
	out, err string
}

func (s *shell) run(args ...string) result {
	s.t.Helper()
	var out, errb buffer
	code := Run(Process{Args: args, Env: s.env, Dir: s.dir, In: strings.NewReader(""), Out: &out, Err: &errb})
	return result{code, out.String(), errb.String()}
}

// want runs a command line and compares all three answers.
func (s *shell) want(code int, out, errText string, args ...string) {
	s.t.Helper()
	if r := s.run(args...); r.code != code || r.out != out || r.err != errText {
		s.t.Errorf("idempo %s\nexit %d, want %d\n--- stdout\n%s--- want\n%s--- stderr\n%s--- want\n%s", strings.Join(args, " "), r.code, code, r.out, out, r.err, errText)
	}
}

func (s *shell) file(name, text string) string {
	s.t.Helper()
	p := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	p := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s\nwant\n%s\n(go test ./internal/cli -update)", p, got, want)
	}
}

// everyCommand walks the visible commands.
func everyCommand() []*cobra.Command {
	return everyOf((&app{out: &stream{}, err: &stream{}}).root())
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand() {
		t.Run("[operations/OP1] help of "+c.CommandPath(), func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			words := strings.Fields(c.CommandPath())[1:]
			r := s.run(append(words, "--help")...)
			if r.code != 0 || r.err != "" {
				t.Fatalf("exit %d, stderr %s", r.code, r.err)
			}
			for _, part := range []string{"Usage: " + c.CommandPath(), "\nExamples:\n  idempo", "\nExit codes:\n    0  done"} {
				if !strings.Contains(r.out, part) {
					t.Errorf("no %q in\n%s", part, r.out)
				}
			}
			if n := len(strings.Split(c.Example, "\n")); n < 2 {
				t.Errorf("%d examples", n)
			}
			for line := range strings.SplitSeq(r.out, "\n") {
				if len([]rune(line)) > 100 {
					t.Errorf("over 100 columns: %s", line)
				}
			}
			golden(t, "help-"+strings.Join(append([]string{"idempo"}, words...), "-"), r.out)
		})
	}
}

func TestUnknownWords(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP2] unknown commands and flags get the nearest valid one and 125", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.want(125, "", "idempo: unknown command \"confg\"\n  did you mean: idempo config\n", "confg")
		s.want(125, "", "idempo config: unknown command \"chekc\"\n  did you mean: idempo config check\n", "config", "chekc")
		s.want(125, "", "idempo config check: unknown flag --exampel\n  did you mean --example?\n", "config", "check", "--exampel")
		s.want(125, "", "idempo config check: unknown flag -x\n  see: idempo config check --help\n", "config", "check", "-x")
		s.want(125, "", "idempo config: name what to do: check\n  idempo config --help\n", "config")
		s.want(125, "", "idempo: --color: unknown value \"alwys\"\n  did you mean always?\n", "version", "--color", "alwys")
		s.want(125, "", "idempo completion: unknown value \"bahs\"\n  did you mean bash?\n", "completion", "bahs")
		if r := s.run("a\x1b[2J\u202e"); r.code != 125 || !strings.HasPrefix(r.err, `idempo: unknown command "a\x1b[2J\u202e"`+"\n") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[operations/OP5] with --json the error is one JSON object on stderr", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		r := s.run("config", "check", "--json", "--nope")
		var body struct {
			Schema int
			Error  struct{ Code, Message, Hint, Docs string }
		}
		if err := json.Unmarshal([]byte(r.err), &body); err != nil || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Fatalf("%v\n%s", err, r.err)
		}
		if r.code != 125 || body.Schema != 1 || body.Error.Code != "usage" || body.Error.Message != "idempo config check: unknown flag --nope" || !strings.HasSuffix(body.Error.Docs, "#usage") {
			t.Errorf("%d %+v", r.code, body)
		}
	})
}

// failing is a stdout that fails after some bytes.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, f.err
	}
	f.left -= len(p)
	return len(p), nil
}

func TestStdoutFails(t *testing.T) {
	t.Parallel()
	run := func(err error) (int, string) {
		var errb buffer
		code := Run(Process{Args: []string{"config", "check", "--example"}, Out: &failing{left: 10, err: err}, Err: &errb, In: strings.NewReader("")})
		return code, errb.String()
	}
	t.Run("[operations/OP5] the reader goes away: a quiet stop", func(t *testing.T) {
		t.Parallel()
		if code, text := run(&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}); code != 141 || text != "" {
			t.Errorf("exit %d, %q", code, text)
		}
	})
	t.Run("[operations/OP5] any other write error is said, 125", func(t *testing.T) {
		t.Parallel()
		if code, text := run(syscall.ENOSPC); code != 125 || text != "idempo: stdout: no space left on device\n" {
			t.Errorf("exit %d, %q", code, text)
		}
	})
}

func TestColor(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP3] --color, NO_COLOR, FORCE_COLOR, terminal", func(t *testing.T) {
		t.Parallel()
		check := func(want bool, flag string, env ...string) {
			t.Helper()
			a := &app{p: Process{Env: env}, color: flag}
			if got := a.colors(&bytes.Buffer{}); got != want {
				t.Errorf("--color %s %v: %v", flag, env, got)
			}
		}
		check(false, "auto")
		check(true, "always", "NO_COLOR=1")
		check(false, "never", "FORCE_COLOR=1")
		check(false, "auto", "NO_COLOR=1", "FORCE_COLOR=1")
		check(true, "auto", "NO_COLOR=", "FORCE_COLOR=1")
		check(false, "auto", "FORCE_COLOR=0")
		if paint(false, "1", "x") != "x" || paint(true, "1", "x") != "\x1b[1mx\x1b[0m" {
			t.Error("paint")
		}
	})
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if terminal(null) {
		t.Error(os.DevNull + " is no terminal")
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP4] control characters, direction marks and broken UTF-8 become visible", func(t *testing.T) {
		t.Parallel()
		for in, want := range map[string]string{
			"plain ünï 漢 😀":       "plain ünï 漢 😀",
			"a\x1b[31mb":          `a\x1b[31mb`,
			"a\r\nb\tc":           `a\r\nb\tc`,
			"\x00\x7f\u0085":      `\x00\x7f\x85`,
			"a\u202eb\u2028":      `a\u202eb\u2028`,
			"\xff\xc3(":           `\xff\xc3(`,
			"\uFFFD":              `\ufffd`,
			"zero\u200bwidth":     `zero\u200bwidth`,
			"\u2066isolate\ufeff": `\u2066isolate\ufeff`,
		} {
			if got := escape(in); got != want {
				t.Errorf("%q is shown as %q, want %q", in, got, want)
			}
		}
	})
}

func TestVersion(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP13] version, commit, Go version", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		var out buffer
		if code := Run(Process{Args: []string{"version", "--json"}, Env: s.env, Dir: s.dir, Out: &out, Err: &out, Version: "v9.8.7"}); code != 0 {
			t.Fatal(code, out.String())
		}
		var v struct {
			Schema          int
			Version, Go, OS string
			Stores          []struct {
				Store   string
				Version int
			}
		}
		if err := json.Unmarshal([]byte(out.String()), &v); err != nil || v.Schema != 1 || v.Version != "v9.8.7" || !strings.HasPrefix(v.Go, "go1.") {
			t.Errorf("%v %s", err, out.String())
		}
		if r := s.run("version"); r.code != 0 || !strings.HasPrefix(r.out, "idempo ") || !strings.Contains(r.out, v.Go) {
			t.Errorf("%+v", r)
		}
	})
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP31] mistakes on stderr, 125", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		f := s.file("idempo.yaml", "version: 1\nlog: {level: loud}\nlissen: {}\n")
		text := f + ":2:14: log.level: unknown word: known here are debug info warn error\n" + f + ":3:1: lissen: unknown key: did you mean listen?\n"
		s.want(125, "", text, "config", "check")
		s.want(125, "", text, "config", "check", "idempo.yaml", "--print")
		r := s.run("config", "check", "--json")
		var body struct {
			Error struct {
				Code     string
				Problems []struct {
					File, Path, Message string
					Line, Column        int
				}
			}
		}
		if err := json.Unmarshal([]byte(r.err), &body); err != nil || body.Error.Code != "config_invalid" || len(body.Error.Problems) != 2 || body.Error.Problems[1].Line != 3 {
			t.Errorf("%v %s", err, r.err)
		}
	})
	t.Run("a valid file says so", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		f := s.file("idempo.yaml", "version: 1\ngateway:\n  tenant: {global: true}\n  upstreams: {pay: {urls: [\"http://127.0.0.1:9000\"]}}\n  routes:\n    - {match: /, upstream: pay}\n    - {match: POST /a, upstream: pay, operation: a}\n")
		s.want(0, f+": valid, 2 routes, 1 of them guarded\n", "", "config", "check")
		s.want(0, "{\"schema\":1,\"file\":\""+f+"\",\"valid\":true}\n", "", "config", "check", "--json")
	})
	t.Run("no file at all", func(t *testing.T) {
		t.Parallel()
		newShell(t).want(125, "", "idempo: no configuration file: name one, or make ./idempo.yaml\n  idempo config check --example > idempo.yaml\n", "config", "check")
	})
	t.Run("[operations/OP11] flag, environment, file, default, each with its origin; secrets masked", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		f := s.file("idempo.yaml", "version: 1\nlisten: {gateway: \"127.0.0.1:1\", admin: \"127.0.0.1:2\"}\nlog: {level: warn}\nmetrics: {token: canary-0123456789}\n")
		s.env = append(s.env, "IDEMPO_STORE=postgres://u:canary@h/d")
		r := s.run("config", "check", "--print", "--json", "--store", "s.db")
		if r.code != 0 || r.err != "" {
			t.Fatal(r)
		}
		for _, want := range []string{
			`{"path":"store.sqlite","value":"` + filepath.Join(s.dir, "s.db") + `","origin":"flag --store"}`,
			`{"path":"listen.gateway","value":"127.0.0.1:1","origin":"` + f + `:2"}`,
			`{"path":"log.level","value":"warn","origin":"` + f + `:3"}`,
			`{"path":"log.format","value":"auto","origin":"default"}`,
			`{"path":"metrics.token","value":"***","origin":"` + f + `:4"}`,
		} {
			if !strings.Contains(r.out, want) {
				t.Errorf("no %s in %s", want, r.out)
			}
		}
		r = s.run("config", "check", "--print")
		if !strings.Contains(r.out, "store.postgres: postgres://u:***@h/d") || !strings.Contains(r.out, "# env IDEMPO_STORE") || strings.Contains(r.out, "canary") {
			t.Error(r.out)
		}
	})
	t.Run("[operations/OP14] [security/SEC40] a password among the arguments is warned of", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.file("idempo.yaml", "version: 1\n")
		r := s.run("config", "check", "--store", "postgres://u:canary@h/d")
		if r.code != 0 || !strings.Contains(r.err, "warning: --store holds a password, and process lists show it") || strings.Contains(r.out+r.err, "canary") {
			t.Error(r)
		}
	})
	t.Run("warnings are an exit code only with --strict", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		if err := os.Chmod(s.file("idempo.yaml", "version: 1\nmetrics: {token: canary-0123456789}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := s.run("config", "check"); r.code != 0 || !strings.Contains(r.err, "warning: ") || strings.Contains(r.err, "canary") {
			t.Error(r)
		}
		if r := s.run("config", "check", "--strict"); r.code != 2 {
			t.Error(r)
		}
	})
	t.Run("[operations/OP15] the file is searched", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		user := s.file(".config/idempo/idempo.yaml", "version: 1\n")
		s.want(0, user+": valid, 0 routes, 0 of them guarded\n", "", "config", "check")
		env := s.file("e.yaml", "version: 1\n")
		s.env = append(s.env, "IDEMPO_CONFIG="+env)
		s.want(0, env+": valid, 0 routes, 0 of them guarded\n", "", "config", "check")
		flag := s.file("f.yaml", "version: 1\n")
		s.want(0, flag+": valid, 0 routes, 0 of them guarded\n", "", "config", "check", "--config", "f.yaml")
	})
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	t.Run("four shells, made from the command table", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		for _, sh := range []string{"bash", "zsh", "fish", "powershell"} {
			if r := s.run("completion", sh); r.code != 0 || r.err != "" || !strings.Contains(r.out, "idempo") || len(r.out) < 1000 {
				t.Errorf("%s: %d %s", sh, r.code, r.err)
			}
		}
		r := s.run("__complete", "config", "ch")
		if !strings.HasPrefix(r.out, "check\t") {
			t.Errorf("completing config ch: %q", r.out)
		}
		s.want(125, "", "idempo completion: name one shell: bash zsh fish powershell\n", "completion")
	})
}
