package deploy_test

import (
	"bufio"
	"context"
	"debug/elf"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// builder builds the binary once, as the image does.
type builder struct {
	once sync.Once
	path string
	out  []byte
	err  error
}

func (b *builder) binary(t *testing.T) string {
	t.Helper()
	b.once.Do(func() {
		dir, err := os.MkdirTemp("", "idempo-deploy")
		if err != nil {
			b.err = err
			return
		}
		b.path = filepath.Join(dir, "idempo")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.path, "./cmd/idempo")
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
		b.out, b.err = cmd.CombinedOutput()
	})
	if b.err != nil {
		t.Fatalf("%v\n%s", b.err, b.out)
	}
	return b.path
}

func TestInstall(t *testing.T) {
	t.Parallel()
	b := &builder{}
	t.Cleanup(func() {
		if b.path != "" {
			_ = os.RemoveAll(filepath.Dir(b.path))
		}
	})
	t.Run("[operations/GS9] the image", func(t *testing.T) { image(t, b) })
	t.Run("[operations/GS9] the unit is what systemd accepts, and exposes little", func(t *testing.T) { unit(t, b) })
	t.Run("[operations/GS9] the compose file, and the configuration that it mounts", func(t *testing.T) { compose(t, b) })
}

// stage returns the lines of the last stage of the container file: what is in the image.
func stage(t *testing.T) (lines []string) {
	t.Helper()
	text := strings.ReplaceAll(read(t, "Containerfile"), "\\\n", " ")
	_, last, ok := strings.Cut(text, "\nFROM scratch\n")
	if !ok {
		t.Fatal("the image is not made from scratch")
	}
	for line := range strings.Lines(last) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func image(t *testing.T, b *builder) {
	t.Run("holds the binary, certificates and an empty folder; no shell, and nobody is root", func(t *testing.T) {
		copied := 0
		user := false
		for _, line := range stage(t) {
			word, rest, _ := strings.Cut(line, " ")
			switch word {
			case "COPY":
				copied++
				if !regexp.MustCompile(`^--from=build (--chown=65532:65532 )?(/etc/ssl/certs/ca-certificates.crt|/out/idempo|/out/var/lib/idempo) \S+$`).MatchString(rest) {
					t.Errorf("copies %s", rest)
				}
			case "USER":
				user = rest == "65532:65532"
			case "ENTRYPOINT", "CMD":
				if !strings.HasPrefix(rest, "[") {
					t.Errorf("%s runs by a shell, and there is none", line)
				}
			case "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL":
			default:
				t.Errorf("%s", line)
			}
		}
		if copied != 3 || !user {
			t.Errorf("%d copies, a user of its own: %v", copied, user)
		}
	})
	t.Run("the binary needs no library, and is small", func(t *testing.T) {
		path := b.binary(t)
		f, err := elf.Open(path)
		if err != nil {
			t.Skip("not an ELF binary: " + err.Error())
		}
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Error("it asks for a dynamic linker")
			}
		}
		if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
			t.Error(libs, err)
		}
		at, err := os.Stat(path)
		if err != nil || at.Size() > 39<<20 { // certificates take a quarter of a MiB
			t.Errorf("%d bytes, %v", at.Size(), err)
		}
	})
	t.Run("serves in a root folder that holds nothing else, as nobody", func(t *testing.T) { alone(t, b.binary(t)) })
}

// alone runs the binary as the image would: in a root folder of its own, without rights, until it is ready, and stops it.
func alone(t *testing.T, binary string) {
	if os.Geteuid() != 0 {
		text := "only root can change the root folder: sudo go test ./deploy -run Install"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	const nobody = 65532
	root := t.TempDir()
	data := filepath.Join(root, "var", "lib", "idempo")
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(root, 0o755), os.Chmod(filepath.Dir(root), 0o755), os.MkdirAll(data, 0o755), os.Chown(data, nobody, nobody), os.WriteFile(filepath.Join(root, "idempo"), b, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the machine may be busy
	defer cancel()
	cmd := exec.CommandContext(ctx, "/idempo", "serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = "/", []string{"IDEMPO_DATA_DIR=/var/lib/idempo"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	var said strings.Builder
	address := ""
	lines := bufio.NewScanner(out)
	for address == "" && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if m := regexp.MustCompile(`http://127\.0\.0\.1:\d+/login\S*|"admin":"(127\.0\.0\.1:\d+)"|admin=(127\.0\.0\.1:\d+)`).FindStringSubmatch(lines.Text()); m != nil && m[1]+m[2] != "" {
			address = m[1] + m[2]
		}
	}
	if address == "" {
		t.Fatalf("it never said where it is:\n%s", said.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	ready := func() bool {
		r, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	}
	for !ready() {
		select {
		case <-ctx.Done():
			t.Fatalf("it is never ready:\n%s", said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	if _, err := os.Stat(filepath.Join(data, "idempo.db")); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if ended = true; err != nil {
		t.Errorf("SIGTERM ends it with %v", err)
	}
}

func unit(t *testing.T, b *builder) {
	analyze := tool(t, "systemd-analyze", "systemd")
	text := read(t, "systemd/idempo.service")
	path := filepath.Join(t.TempDir(), "idempo.service")
	here := strings.Replace(text, "ExecStart=/usr/local/bin/idempo", "ExecStart="+b.binary(t), 1)
	if here == text {
		t.Fatal("the unit starts another program")
	}
	if err := os.WriteFile(path, []byte(here), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput(); err != nil || len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=20", path).CombinedOutput() // in tenths: 2.0 of 10
	if err != nil || !strings.Contains(string(out), "Overall exposure level") {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	for _, want := range []string{"DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=\n", "StateDirectory=idempo", "IDEMPO_DATA_DIR=%S/idempo", "kill -HUP $MAINPID", "TimeoutStopSec=35s"} {
		if !strings.Contains(text, want) {
			t.Errorf("the unit has no %s", want)
		}
	}
}

func compose(t *testing.T, b *builder) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "postgres")
	if err := os.WriteFile(secret, []byte("canary-of-a-password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "idempo.yaml")
	if err := os.WriteFile(config, []byte(strings.Replace(read(t, "idempo.yaml"), "/run/secrets/postgres", secret, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), b.binary(t), "config", "check", config, "--print").CombinedOutput()
	if err != nil || strings.Contains(string(out), "canary") || !regexp.MustCompile(`store.postgres: .*\*\*\*`).Match(out) {
		t.Errorf("config check: %v\n%s", err, out)
	}
	text := read(t, "compose.yaml")
	for _, want := range []string{"dockerfile: deploy/Containerfile", `user: "65532:65532"`, "read_only: true", "cap_drop: [ALL]", "no-new-privileges:true", `"127.0.0.1:7070:7070"`,
		"./idempo.yaml:/etc/idempo/idempo.yaml:ro", "POSTGRES_PASSWORD_FILE: /run/secrets/postgres", "condition: service_healthy"} {
		if !strings.Contains(text, want) {
			t.Errorf("the compose file has no %s", want)
		}
	}
	if strings.Contains(text, "POSTGRES_PASSWORD:") {
		t.Error("a password stands in the compose file")
	}
	docker, err := exec.LookPath("docker")
	if err != nil || exec.CommandContext(t.Context(), docker, "compose", "version").Run() != nil {
		t.Log("no docker compose on this machine: the file was read, and not started")
		return
	}
	if out, err := exec.CommandContext(t.Context(), docker, "compose", "-f", "compose.yaml", "config", "--quiet").CombinedOutput(); err != nil {
		t.Errorf("docker compose config: %v\n%s", err, out)
	}
}
