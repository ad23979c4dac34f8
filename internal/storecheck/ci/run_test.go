//go:build unix

package ci_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runCI runs a copy of .ci/run where make writes its target to a file and fails for the one in broken.
func runCI(t *testing.T, broken string, env ...string) (targets []string, printed string, code int) {
	t.Helper()
	dir := t.TempDir()
	copyFile(t, "../../../.ci/run", filepath.Join(dir, ".ci", "run"))
	tool(t, dir, "make", `target=$2
echo "$target" >>"$CALLS"
cat >/dev/null # hangs if the script left a terminal open
echo "skipped: some/pkg TestOf$target: no $target here"
[ "$target" != "$BROKEN" ]`)
	for _, name := range []string{"gcc", "curl", "initdb", "mariadbd", "pgbouncer", "sqlite3", "psql", "python3", "node", "npm"} {
		tool(t, dir, name, "true")
	}
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, ".ci", "run"))
	calls := filepath.Join(dir, "calls")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "CALLS="+calls, "BROKEN="+broken,
		"IDEMPO_TEST_POSTGRES=postgres://nobody.invalid/none", "IDEMPO_TEST_MYSQL=mysql://nobody.invalid/", "PHASES=", "FUZZTIME=")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(calls)
	if err != nil {
		t.Fatalf("make was not called: %v\n%s", err, out)
	}
	return strings.Fields(string(b)), string(out), code
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func tool(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte("#!/bin/bash\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestRunCallsEveryPhase(t *testing.T) {
	t.Parallel()
	targets, printed, code := runCI(t, "")
	if code != 0 || !strings.Contains(printed, "all phases passed") {
		t.Errorf("exit code %d:\n%s", code, printed)
	}
	if got := strings.Join(targets, " "); got != "build test lint policy verify fuzz race vuln cross crash" {
		t.Errorf("phases: %s", got)
	}
	for _, target := range targets {
		if !strings.Contains(printed, "\nskipped: some/pkg TestOf"+target) {
			t.Errorf("the skip in %s is not shown", target)
		}
	}
	_, tail, _ := strings.Cut(printed, "what was skipped:\n")
	if n := strings.Count(tail, "skipped: some/pkg"); n != len(targets) {
		t.Errorf("%d of %d skips stand at the end", n, len(targets))
	}
}

func TestARedPhaseStopsTheBuild(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"build", "test", "lint", "policy", "verify", "fuzz", "race", "vuln", "cross", "crash"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			targets, printed, code := runCI(t, broken)
			if code != 1 || !strings.Contains(printed, "\nFAILED: "+broken+"\n") {
				t.Errorf("exit code %d:\n%s", code, printed)
			}
			if len(targets) != 10 {
				t.Errorf("the phases after it did not run: %v", targets)
			}
		})
	}
}

func TestRunSomePhases(t *testing.T) {
	t.Parallel()
	targets, _, code := runCI(t, "", "PHASES=lint race")
	if strings.Join(targets, " ") != "lint race" || code != 0 {
		t.Errorf("%v, exit code %d", targets, code)
	}
}

func TestWithoutAServerTheBuildIsRed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyFile(t, "../../../.ci/postgres", filepath.Join(dir, "postgres"))
	tool(t, dir, "initdb", "exit 1")
	for _, name := range []string{"psql", "useradd", "runuser"} {
		tool(t, dir, name, "exit 2")
	}
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "postgres"), filepath.Join(dir, "home"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "IDEMPO_TEST_POSTGRES=")
	out, err := cmd.Output()
	if err == nil || len(out) != 0 {
		t.Errorf("no error, and the connection string %q", out)
	}
	copyFile(t, "../../../.ci/mysql", filepath.Join(dir, "mysql"))
	for _, name := range []string{"mariadb", "mariadbd", "useradd", "chown", "mariadb-install-db"} {
		tool(t, dir, name, "exit 1")
	}
	cmd = exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "mysql"), filepath.Join(dir, "home"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "IDEMPO_TEST_MYSQL=")
	if out, err = cmd.Output(); err == nil || len(out) != 0 {
		t.Errorf("no error, and the connection string %q", out)
	}
}

func TestAGivenServerIsTaken(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "bash", "../../../.ci/postgres", t.TempDir())
	cmd.Env = append(os.Environ(), "IDEMPO_TEST_POSTGRES=postgres://somewhere.invalid/x")
	out, err := cmd.Output()
	if err != nil || string(out) != "postgres://somewhere.invalid/x\n" {
		t.Errorf("%q %v", out, err)
	}
	cmd = exec.CommandContext(t.Context(), "bash", "../../../.ci/mysql", t.TempDir())
	cmd.Env = append(os.Environ(), "IDEMPO_TEST_MYSQL=mysql://somewhere.invalid/")
	if out, err = cmd.Output(); err != nil || string(out) != "mysql://somewhere.invalid/\n" {
		t.Errorf("%q %v", out, err)
	}
}

func TestWhatIsMissingIsInstalled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyFile(t, "../../../.ci/run", filepath.Join(dir, ".ci", "run"))
	bin := filepath.Join(dir, "bin")
	for _, name := range []string{"bash", "dirname", "mktemp", "rm", "tee", "grep", "touch", "tail", "sort", "cat"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("no %s on the PATH", name)
		}
		tool(t, dir, name, "exec "+real+` "$@"`)
	}
	for _, name := range []string{"make", "git", "curl", "initdb", "go", "sqlite3", "nats-server", "rabbitmq-server", "psql", "python3", "npm", "node"} {
		tool(t, dir, name, "true")
	}
	tool(t, dir, "apt-get", `echo "$@" >>"`+dir+`/asked"`)
	cmd := exec.CommandContext(t.Context(), "/bin/bash", filepath.Join(dir, ".ci", "run"))
	cmd.Env = []string{"PATH=" + bin, "IDEMPO_TEST_POSTGRES=postgres://nobody.invalid/none", "IDEMPO_TEST_MYSQL=mysql://nobody.invalid/"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil || !strings.Contains(string(asked), " gcc libc6-dev mariadb-server pgbouncer prometheus systemd chromium\n") || strings.Contains(string(asked), "curl") {
		t.Errorf("asked for %q %v", asked, err)
	}
}
