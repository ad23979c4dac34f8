package cli

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// built is the binary as a release has it: static, version stamped.
func built(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "idempo")
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=v0.0.1-test", "-o", file, "../..")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

func digestOf(t *testing.T, file string) (sum [32]byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// exitCode is the code as a shell shows it: 128 and the signal for a process that a signal ended.
func exitCode(err error) int {
	e, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0
	case !ok:
		return -1
	}
	if w, ok := e.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return e.ExitCode()
}

func TestBinary(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("go"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("no go command to build the binary with")
	}
	file := built(t, t.TempDir())
	t.Run("[operations/OP13] two builds are byte-identical, and the version is stamped", func(t *testing.T) {
		t.Parallel()
		if digestOf(t, file) != digestOf(t, built(t, t.TempDir())) {
			t.Error("two builds differ")
		}
		out, err := exec.Command(file, "version").Output()
		if err != nil || !bytes.HasPrefix(out, []byte("idempo v0.0.1-test\n")) {
			t.Errorf("%v %s", err, out)
		}
	})
	t.Run("[operations/OP5] | head: a quiet stop, 141", func(t *testing.T) {
		t.Parallel()
		c := exec.Command(file, "completion", "bash") // more than a pipe holds would be better, but the reader is gone before the first write
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		var errb bytes.Buffer
		c.Stdout, c.Stderr = w, &errb
		if code := exitCode(c.Run()); code != 141 || errb.Len() != 0 {
			t.Errorf("exit %d, %s", code, errb.String())
		}
		w.Close()
	})
	t.Run("[security/SEC20] what an upstream sends unasked is in no line", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("no SIGTERM")
		}
		up, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer up.Close()
		dropped := make(chan struct{})
		go func() {
			defer close(dropped)
			c, err := up.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			r := bufio.NewReader(c)
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nContent-Length: 12\r\n\r\ncanary-bytes")
			_, _ = io.Copy(io.Discard, r) // until the connection is dropped, which is after any line about it
		}()
		c := exec.Command(file, "serve", "--upstream", "http://"+up.Addr().String(), "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		c.Dir = t.TempDir()
		c.Env = []string{"HOME=" + c.Dir}
		r, err := c.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines, address := bufio.NewScanner(r), ""
		for lines.Scan() && !strings.Contains(lines.Text(), "curl -i") {
			if _, at, ok := strings.Cut(lines.Text(), "gateway   "); ok {
				address = strings.TrimSpace(at)
			}
		}
		if res, err := http.Post(address+"/x", "text/plain", nil); err != nil || res.StatusCode != http.StatusNoContent {
			t.Errorf("%v %v", res, err)
		} else {
			res.Body.Close()
			<-dropped
		}
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if strings.Contains(lines.Text(), "canary-bytes") {
				t.Errorf("an upstream's bytes are in a line: %s", lines.Text())
			}
		}
		_ = c.Wait()
	})
	t.Run("[operations/OP43] SIGTERM: exit 0", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("no SIGTERM")
		}
		c := exec.Command(file, "serve", "--upstream", "http://127.0.0.1:1", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		c.Dir = t.TempDir()
		c.Env = []string{"HOME=" + c.Dir}
		r, err := c.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(r)
		for lines.Scan() && !strings.Contains(lines.Text(), "curl -i") {
		}
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r)
		if code := exitCode(c.Wait()); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("[operations/GS4] the demo of the binary starts its services from itself", func(t *testing.T) {
		t.Parallel()
		c := exec.Command(file, "demo", "--once", "--scene", "lost", "--seed", "7", "--json")
		c.Env = []string{"HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
		out, err := c.Output()
		if err != nil || !bytes.Contains(out, []byte(`"charges_bare":2,"charges_guarded":1`)) {
			t.Errorf("%v %s", err, out)
		}
		entries, err := os.ReadDir(strings.TrimPrefix(c.Env[1], "TMPDIR="))
		if err != nil || len(entries) != 0 {
			t.Errorf("left behind: %v %v", entries, err)
		}
	})
}
