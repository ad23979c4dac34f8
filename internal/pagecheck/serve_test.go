package pagecheck

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// serve starts the binary before an upstream and returns its gateway's address and the link of its banner.
func serve(t *testing.T, upstream string) (gateway, link string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "idempo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/idempo/idempo/cmd/idempo").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	cmd := exec.Command(binary, "serve", "--upstream", upstream, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir", t.TempDir())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	front := regexp.MustCompile(`^  gateway +(http://\S+)`)
	login := regexp.MustCompile(`^  dashboard +(http://\S+/login\?code=\S+)`)
	for (gateway == "" || link == "") && lines.Scan() {
		if m := front.FindStringSubmatch(lines.Text()); m != nil {
			gateway = m[1]
		}
		if m := login.FindStringSubmatch(lines.Text()); m != nil {
			link = m[1]
		}
	}
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	if link == "" {
		t.Fatal("no link in the banner")
	}
	return gateway, link
}

func TestServe(t *testing.T) {
	t.Run("[operations/UI1] [operations/UI15] idempo serve: the link of the banner, three calls, one effect, and who is logged out sees nothing", func(t *testing.T) {
		calls := 0
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls++
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"id":%d}`, calls)
		}))
		t.Cleanup(up.Close)
		gateway, link := serve(t, up.URL)
		b := openTab(t, view{})
		b.open(link)
		b.keep("dashboard-login")
		b.fill("input[name=name]", "ann")
		b.follow("button.primary")
		b.shows("Nothing is in doubt", "No keys yet")
		for range 3 {
			r, err := http.NewRequestWithContext(t.Context(), "POST", gateway+"/v1/payments", strings.NewReader(`{"amount":1200}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "order-81")
			r.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(r)
			if err != nil || resp.StatusCode != http.StatusCreated {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
		}
		if calls != 1 {
			t.Error(calls, "calls reached the service")
		}
		get(b, chromedp.Poll[bool](`document.querySelector(".numbers dd")?.innerText === "2"`)) // duplicates avoided, without a reload
		b.follow(`nav a[href="/keys"]`)
		b.fill("#q", "order-81")
		b.follow(".search button")
		b.shows("completed", "status 201", "gateway.upstream")
		b.follow(`nav a[href="/settings"]`)
		b.shows("ann", "listen.admin", "dashboard.auth")
		b.follow(`.foot form button`)
		b.shows("Log in")
		b.open(strings.Replace(link, "/login", "/keys", 1))
		b.shows("Log in", "Token")
		b.open(link)
		b.follow("button.primary")
		b.expect("401")
		b.shows("The link was used already")
	})
}
