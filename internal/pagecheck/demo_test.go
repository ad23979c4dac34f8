package pagecheck

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// demo starts the demo and returns the address of its page, and a way to end it and to learn its exit code.
func demo(t *testing.T) (page, temp string, end func() int) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "idempo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/idempo/idempo/cmd/idempo").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	temp = t.TempDir()
	cmd := exec.Command(binary, "demo", "--stay", "--no-browser", "--scene", "lost", "--seed", "7")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() int {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(syscall.SIGINT)
			_, _ = io.Copy(io.Discard, stdout)
			_ = cmd.Wait()
		}
		return cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() { end() })
	address := regexp.MustCompile(`in a browser: (http://127\.0\.0\.1:\d+/)`)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			return m[1], temp, end
		}
	}
	t.Fatal("the demo does not say where its page is")
	return "", "", nil
}

func TestDemo(t *testing.T) {
	page, temp, end := demo(t)
	b := openTab(t, view{noJS: true})
	play := func(scene string) {
		t.Helper()
		b.follow("#" + scene + " .top button")
	}
	ledger := func(scene string) string {
		t.Helper()
		return b.text("#"+scene+" .sides > :first-child .ledger") + " | " + b.text("#"+scene+" .sides > :last-child .ledger")
	}
	b.open(page)
	t.Run("[operations/GS5] the scenes side by side, in a browser without JavaScript", func(t *testing.T) {
		for _, scene := range []string{"lost", "double", "changed"} {
			play(scene)
			if got := ledger(scene); !strings.HasPrefix(got, "2 charges,") || !strings.Contains(got, "| 1 charge,") {
				t.Errorf("%s: %s", scene, got)
			}
		}
	})
	t.Run("[operations/GS6] the crash behind the gateway waits in doubt, and the probe settles it in the dashboard", func(t *testing.T) {
		play("crash")
		b.shows("In doubt.", "409 in_doubt", "With the library inside the service: no answer → 201 executed")
		b.keep("demo-crash")
		b.follow("#crash .next a")
		b.shows("Ask the probe")
		b.click(`input[name=to][value=probe]`)
		b.fill(`[name=reason]`, "the ledger knows")
		b.follow(`.decision button.primary`)
		b.shows("Settled")
		b.open(page)
		b.follow("#crash .next button")
		b.shows("201 replayed")
		if got := ledger("crash"); !strings.HasPrefix(got, "2 charges,") || !strings.Contains(got, "| 1 charge,") {
			t.Error(got)
		}
	})
	t.Run("[operations/GS4] light, dark, 320 pixels wide; nothing is left behind", func(t *testing.T) {
		for name, look := range map[string]view{"demo": {height: 1500, width: 1280}, "demo-dark": {dark: true, height: 1500, width: 1280}, "demo-narrow": {width: 320, height: 1500}} {
			b := openTab(t, look)
			b.open(page)
			b.narrow()
			for _, wrong := range append(get(b, chromedp.Evaluate[[]string](faint)), get(b, chromedp.Evaluate[[]string](nameless))...) {
				t.Errorf("%s: %s", name, wrong)
			}
			b.keep(name)
		}
		if code := end(); code != 0 {
			t.Errorf("exit %d", code)
		}
		if _, err := http.Get(page); err == nil {
			t.Error("the page still answers")
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Error(left, err)
		}
	})
}
