package pagecheck

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "make the pictures under docs/img anew") //nolint:gochecknoglobals // a test's flag

// tab is a page of a browser that was started for this test alone.
type tab struct {
	*testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string // on the console
}

// view is how a page is looked at.
type view struct {
	width, height int64
	dark, noJS    bool
}

// openTab starts Chromium. Without one the test is skipped; where CI is set it fails.
func openTab(t *testing.T, v view) *tab {
	t.Helper()
	binary := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			binary = p
			break
		}
	}
	if binary == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no Chromium: apt-get install chromium")
		}
		t.Skip("skipped: no Chromium on the PATH; apt-get install chromium")
	}
	if v.width == 0 {
		v.width, v.height = 1280, 860
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.WindowSize(int(v.width), int(v.height)), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-features", "BackForwardCache,Translate,site-per-process,BlinkGenPropertyTrees"), // a page out of that cache is not reported as loaded
		chromedp.Flag("lang", "en"), chromedp.Flag("hide-scrollbars", true), chromedp.Env("TZ=Europe/Berlin"), chromedp.WSURLReadTimeout(time.Minute))
	alloc, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	b := &tab{T: t}
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithListener(b.hear))
	if err := chromedp.Do(ctx); err != nil { // starts it: a time limit here would be the browser's own
		t.Fatal(err)
	}
	var stop context.CancelFunc
	b.ctx, stop = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(func() { stop(); cancel(); end() })
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	b.do(call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}),
		call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: v.height, DeviceScaleFactor: 1}),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}),
		call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.noJS}))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, line := range b.said {
			t.Errorf("the browser says: %s", line)
		}
	})
	return b
}

// call is a command of the browser's protocol as a step.
func call[P, R any](cmd cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, cmd, params)
		return err
	})
}

// hear keeps what a browser complains about: exceptions, errors of the console, violations of the page's policy.
func (b *tab) hear(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, fmt.Sprint(e.ExceptionDetails.Text))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.said = append(b.said, fmt.Sprint("console ", e.Type))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			b.said = append(b.said, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// expect takes complaints back that the test asked for: a page with an error status.
func (b *tab) expect(part string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []string
	for _, line := range b.said {
		if !strings.Contains(line, part) {
			rest = append(rest, line)
		}
	}
	if len(rest) == len(b.said) {
		b.Errorf("the browser did not say %q: %v", part, b.said)
	}
	b.said = rest
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.stuck(err)
	}
}

// stuck ends the test, saying what the page says.
func (b *tab) stuck(err error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Text("body"))
	if dir := os.Getenv("PAGECHECK_PICTURES"); dir != "" {
		png, _ := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		_ = os.WriteFile(filepath.Join(dir, "stuck.png"), png, 0o600)
	}
	b.Fatalf("%v; the page says: %.1500s", err, text)
}

func get[T any](b *tab, a chromedp.Action[T]) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, a)
	if err != nil {
		b.stuck(err)
	}
	return v
}

// open goes to an address and waits until it stands.
func (b *tab) open(url string) { b.Helper(); b.do(chromedp.Navigate(url)) }

// follow clicks on what is found and waits for the page that comes.
func (b *tab) follow(selector string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(selector)); err != nil {
		b.stuck(fmt.Errorf("click %s: %w", selector, err))
	}
}

func (b *tab) click(selector string) { b.Helper(); b.do(chromedp.Click(selector)) }

func (b *tab) fill(selector, text string) {
	b.Helper()
	if get(b, chromedp.Value(selector)) != "" {
		b.do(chromedp.Clear(selector))
	}
	b.do(chromedp.SendKeys(selector, text))
}

func (b *tab) text(selector string) string { b.Helper(); return get(b, chromedp.Text(selector)) }

// shows fails unless the text of the page holds all of want.
func (b *tab) shows(want ...string) {
	b.Helper()
	text := b.text("main")
	for _, w := range want {
		if !strings.Contains(text, w) {
			b.Errorf("the page does not say %q: %.3000s", w, text)
		}
	}
}

func (b *tab) address() string { b.Helper(); return get(b, chromedp.Location()) }

// picture keeps what the page looks like.
func (b *tab) picture(file string) {
	b.Helper()
	if err := os.WriteFile(file, get(b, chromedp.CaptureScreenshot()), 0o600); err != nil {
		b.Fatal(err)
	}
}

// keep makes a picture of docs/img with -update; else it only makes sure that one can be made and is kept.
func (b *tab) keep(name string) {
	b.Helper()
	file := filepath.Join("..", "..", "docs", "img", name+".png")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			b.Fatal(err)
		}
		b.picture(file)
		return
	}
	if dir := os.Getenv("PAGECHECK_PICTURES"); dir != "" {
		b.picture(filepath.Join(dir, name+".png"))
	}
	if _, err := os.Stat(file); err != nil {
		b.Errorf("no picture: go test ./internal/pagecheck -update (%v)", err)
	}
}

// narrow fails if the page can be scrolled sideways.
func (b *tab) narrow() {
	b.Helper()
	wide := get(b, chromedp.Evaluate[[]int](`[document.documentElement.scrollWidth, document.documentElement.clientWidth]`))
	if wide[0] > wide[1] {
		b.Errorf("%s scrolls sideways: %d pixels in %d", b.address(), wide[0], wide[1])
	}
}
