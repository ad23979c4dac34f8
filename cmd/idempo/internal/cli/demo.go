package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/demo"
)

type demoFlags struct {
	once, stay, noBrowser bool
	scenes                []string
	seed                  uint64
}

func (a *app) demoCommand() *cobra.Command {
	var d demoFlags
	c := &cobra.Command{
		Use: "demo", Short: "four accidents that double a payment, with and without idempo",
		Long: "Start a small payments service twice, bare and behind the gateway, and play four accidents on\n" +
			"both: an answer lost on the wire, two clicks at once, a key used for another amount, a crash\n" +
			"after the charge. Then count the ledgers. On a terminal the same scenes are played in a browser\n" +
			"afterwards, where the crash waits in doubt and you settle it. Everything is on this machine only,\n" +
			"and nothing is left behind.",
		Example:     "idempo demo --once\nidempo demo --once --scene lost,double --seed 7 --json",
		Annotations: exits(exitNo, exitInterrupted),
		RunE:        func(c *cobra.Command, _ []string) error { return a.demo(c, d) },
	}
	f := c.Flags()
	f.BoolVar(&d.once, "once", false, "end after the scenes; the default where stdout is no terminal")
	f.StringSliceVar(&d.scenes, "scene", nil, "only these `scenes`: lost,double,changed,crash")
	f.Uint64Var(&d.seed, "seed", 0, "`number` that amounts and keys are made from; 0: a new one")
	f.Bool("json", false, "one JSON object")
	f.BoolVar(&d.stay, "stay", false, "serve the page without a terminal as well, until Ctrl-C")
	f.BoolVar(&d.noBrowser, "no-browser", false, "open no browser, only say where the page is")
	return c
}

// demoChild is the hidden command that the services of a demo run as.
func (a *app) demoChild() *cobra.Command {
	var child demo.Child
	c := &cobra.Command{Use: "demo-service", Hidden: true, RunE: func(*cobra.Command, []string) error {
		return demo.RunChild(child, a.p.In, a.out)
	}}
	f := c.Flags()
	f.StringVar(&child.Kind, "kind", "", "")
	f.StringVar(&child.Dir, "dir", "", "")
	f.StringVar(&child.Ledger, "ledger", "", "")
	f.StringVar(&child.Listen, "listen", "", "")
	return c
}

func (a *app) demo(c *cobra.Command, d demoFlags) (err error) {
	if len(d.scenes) == 0 {
		d.scenes = demo.Names()
	}
	for _, s := range d.scenes {
		if f := checkWord("--scene", s, demo.Names()...); f != nil {
			return f
		}
	}
	if d.seed == 0 {
		d.seed = 1 + rand.Uint64N(1_000_000)
	}
	ctx, cancel := a.interruptible(c)
	defer cancel()
	stage, err := demo.Open(ctx, demo.Options{Program: a.p.Self, Env: a.p.Env, Seed: d.seed, Version: a.build().Version})
	if err != nil {
		return interruptedOr(ctx, err)
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	show := &playbill{a: a, color: a.colors(a.p.Out), seed: d.seed}
	show.begin()
	ok := true
	for _, scene := range d.scenes {
		o, err := stage.Play(ctx, scene)
		if err != nil {
			return interruptedOr(ctx, err)
		}
		ok = ok && o.OK()
		show.scene(o)
	}
	if err := show.end(ok); err != nil {
		return err
	}
	if !ok {
		return &failure{exit: exitNo, code: "claim_failed", message: "the claim does not hold: a guarded intent did not have exactly one charge, or a bare one was not doubled"}
	}
	if d.once || a.json || !d.stay && !terminal(a.p.Out) {
		return nil
	}
	return a.demoPage(ctx, d)
}

// demoPage serves the scenes as a page, over services of its own, until it is interrupted.
func (a *app) demoPage(ctx context.Context, d demoFlags) (err error) {
	stage, err := demo.Open(ctx, demo.Options{Program: a.p.Self, Env: a.p.Env, Seed: d.seed, Version: a.build().Version, Browser: true})
	if err != nil {
		return interruptedOr(ctx, err)
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	page, err := demo.OpenPage(stage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	a.out.printf("\nThe same in a browser: %s\n"+
		"The gateway's dashboard: %s/\n"+
		"By hand, twice: curl -i %s/v1/payments -H 'Idempotency-Key: mine-1' -d '{\"amount\":1200}'\n"+
		"Ctrl-C ends everything and leaves nothing behind.\n", page.URL(), stage.Admin(), stage.Front())
	if !d.noBrowser {
		a.openBrowser(page.URL())
	}
	<-ctx.Done()
	return nil
}

// openBrowser asks the system to show an address. That it cannot is no fault: the address has been said.
func (a *app) openBrowser(url string) {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	default:
		if a.env("DISPLAY") == "" && a.env("WAYLAND_DISPLAY") == "" {
			return
		}
	}
	c := exec.Command(name, args...)
	c.Env = a.p.Env
	if c.Start() == nil {
		go func() { _ = c.Wait() }()
	}
}

func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &failure{exit: exitInterrupted, silent: true}
	}
	return err
}

// playbill writes what happened, scene by scene, in two columns of at most 80 characters; or as JSON at the end.
type playbill struct {
	a      *app
	color  bool
	seed   uint64
	scenes []demo.Outcome
}

const twoColumns = "  %-32s  %s\n"

func (p *playbill) begin() {
	if p.a.json {
		return
	}
	p.a.out.printf("A payments service, twice: bare, and behind idempo. Seed %d.\n\n", p.seed)
	p.a.out.printf(twoColumns, "bare", "guarded")
	p.a.out.line("  " + strings.Repeat("─", 76))
}

func (p *playbill) scene(o demo.Outcome) {
	p.scenes = append(p.scenes, o)
	if p.a.json {
		return
	}
	out := p.a.out
	out.line(paint(p.color, "1", o.Scene) + ": " + demo.Story(o.Scene))
	out.line("  " + o.Request)
	left, right := strings.Join(o.Bare.Answers, " → "), strings.Join(o.Guarded.Answers, " → ")
	out.printf(twoColumns, left, right)
	bad := o.Bare.Charges > o.Intents
	text := charged(o.Bare)
	out.line("  " + paint(p.color && bad, "31", text) + strings.Repeat(" ", max(0, 32-len([]rune(text)))) + "  " + paint(p.color && o.Guarded.Charges == o.Intents, "32", charged(o.Guarded)))
	if o.Library != nil {
		out.printf(twoColumns, "with the library's atomic guard:", strings.Join(o.Library.Answers, " → "))
		out.printf(twoColumns, "rolled back, and the retry runs", charged(*o.Library))
	}
	out.line("")
}

func charged(s demo.Side) string {
	word := "charges"
	if s.Charges == 1 {
		word = "charge"
	}
	return fmt.Sprintf("ledger: %d %s, %d.%02d EUR", s.Charges, word, s.Total/100, s.Total%100)
}

func (p *playbill) end(ok bool) error {
	if !p.a.json {
		intents, bare, guarded := 0, 0, 0
		for _, o := range p.scenes {
			intents, bare, guarded = intents+o.Intents, bare+o.Bare.Charges, guarded+o.Guarded.Charges
		}
		p.a.out.printf("%d payments were meant. Bare: %d charges. Behind idempo: %d.\n", intents, bare, guarded)
		return nil
	}
	type row struct {
		Scene          string   `json:"scene"`
		Intents        int      `json:"intents"`
		ChargesBare    int      `json:"charges_bare"`
		ChargesGuarded int      `json:"charges_guarded"`
		ChargesLibrary *int     `json:"charges_library,omitempty"`
		Verdicts       []string `json:"verdicts"`
		OK             bool     `json:"ok"`
	}
	out := struct {
		Schema int    `json:"schema"`
		Seed   uint64 `json:"seed"`
		OK     bool   `json:"ok"`
		Scenes []row  `json:"scenes"`
	}{Schema: 1, Seed: p.seed, OK: ok}
	for _, o := range p.scenes {
		r := row{Scene: o.Scene, Intents: o.Intents, ChargesBare: o.Bare.Charges, ChargesGuarded: o.Guarded.Charges, Verdicts: o.Verdicts, OK: o.OK()}
		if o.Library != nil {
			r.ChargesLibrary = &o.Library.Charges
		}
		out.Scenes = append(out.Scenes, r)
	}
	return p.a.out.object(out)
}
