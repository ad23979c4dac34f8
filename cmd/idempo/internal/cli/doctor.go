package cli

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

// finding is one line of the doctor.
type finding struct {
	Check string `json:"check"`
	Grade string `json:"grade"` // ok, warn, bad
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use: "doctor", Short: "look for settings and conditions that weaken what idempo promises",
		Long: "Look at configuration, store, schema, pooler, clocks, digest keys, files, what waits to be\n" +
			"purged and keys in doubt, and say of each whether it is ok, with the fix where it is not.\n" +
			"It changes nothing.",
		Example:     "idempo doctor --store ./idempo.db\nidempo doctor --store ./idempo.db --json --strict",
		Annotations: exits(exitNo, exitWarnings, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := a.interruptible(c)
			defer cancel()
			d := &doctor{a: a}
			d.examine(ctx, c)
			if ctx.Err() != nil {
				return &failure{exit: exitInterrupted, silent: true}
			}
			return d.report(strict)
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "exit 2 if there are warnings only")
	c.Flags().Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

// doctor collects findings.
type doctor struct {
	a        *app
	findings []finding
	old      []string // ids of digest keys that make no new records
}

func (d *doctor) ok(check, format string, args ...any) {
	d.findings = append(d.findings, finding{check, "ok", fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(check, fix, format string, args ...any) {
	d.findings = append(d.findings, finding{check, "warn", fmt.Sprintf(format, args...), fix})
}

func (d *doctor) bad(check, fix, format string, args ...any) {
	d.findings = append(d.findings, finding{check, "bad", fmt.Sprintf(format, args...), fix})
}

func (d *doctor) examine(ctx context.Context, c *cobra.Command) {
	src := d.a.source(c)
	s, warnings, err := config.Load(src)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			d.bad("config", "idempo config check", "%s", line)
		}
		return
	}
	if s.File == "" {
		d.ok("config", "no file, defaults only")
	} else {
		d.ok("config", "%s", s.File)
	}
	for _, w := range warnings {
		d.warn("config", "see the message", "%s", w)
	}
	d.settings(s)
	d.digestKeys(s)
	d.encryption(s)
	d.token(s)
	d.store(ctx, s)
}

// settings names what is allowed, and weaker than it could be.
func (d *doctor) settings(s *config.Settings) {
	if s.Gateway.Tenant.Global && s.Upstream == "" {
		d.warn("tenant", "set gateway.tenant.header, jwt, mtls or forward_auth", "all callers are one tenant")
	}
	for _, r := range s.Gateway.Routes {
		if r.OnStoreDown == "run" {
			d.warn("routes", "remove on_store_down: run", "%s runs unguarded while the store is down", r.Operation)
		}
		if r.Fingerprint == "none" {
			d.warn("routes", "remove fingerprint: none", "%s answers any request that has a known key", r.Operation)
		}
	}
	if host, _, err := net.SplitHostPort(s.Listen.Admin); err == nil && host != "localhost" {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
			d.warn("listeners", "bind listen.admin to 127.0.0.1, or keep it behind a proxy with TLS", "the dashboard listens beyond this machine, at %s", s.Listen.Admin)
		}
	}
	if !s.Store.Strict {
		d.warn("store", "remove strict: false", "settings that can lose acknowledged records are accepted")
	}
	if fix, yes := database.Unverified(s.Store); yes {
		d.bad("store", fix, "the database is reached over the network without verified TLS")
	}
}

func (d *doctor) digestKeys(s *config.Settings) {
	secrets, err := server.DigestKeys(s)
	switch {
	case err != nil && len(s.Keys) == 0:
		d.warn("digest keys", "idempo serve makes one; or name one in security.digest_keys", "%v", err)
	case err != nil:
		d.bad("digest keys", "see the message", "%v", err)
	case len(secrets) == 1:
		d.ok("digest keys", "one, id %s", secrets[0].ID)
	}
	for _, k := range secrets[min(1, len(secrets)):] {
		d.old = append(d.old, k.ID)
	}
	if len(s.Keys) == 0 {
		d.private(server.DigestKeyFile(s))
	}
}

// private wants a file that holds a secret, and is there, to be its owner's alone. Files that the configuration names are looked
// at where they are read.
func (d *doctor) private(file string) {
	if st, err := os.Stat(file); err == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		d.bad("files", "chmod 600 "+file, "others can read %s", file)
	}
}

// longestToken is how old the token of the dashboard may be.
const longestToken = 365 * 24 * time.Hour

// token looks at the token that idempo serve has made.
func (d *doctor) token(s *config.Settings) {
	file := server.TokenFile(s)
	st, err := os.Stat(file)
	if s.Dashboard.Auth != "token" || err != nil {
		return
	}
	d.private(file)
	if age := time.Since(st.ModTime()); age > longestToken {
		d.warn("token", "remove "+file+" and start idempo serve again: it makes another", "the dashboard's token was made %s and never changed", ago(age))
	} else {
		d.ok("token", "the dashboard's token is less than a year old")
	}
}

func (d *doctor) encryption(s *config.Settings) {
	switch keys := s.Encrypt.Keys; {
	case len(keys) == 0:
		d.warn("encryption", "name a key in security.encryption_keys", "off: whoever reads the store reads stored answers")
	case s.Encrypt.Required:
		d.ok("encryption", "on and required, key %s", keys[0].ID)
	default:
		d.ok("encryption", "on, key %s", keys[0].ID)
	}
}

func (d *doctor) report(strict bool) error {
	count := map[string]int{}
	for _, f := range d.findings {
		count[f.Grade]++
	}
	if d.a.json {
		out := struct {
			Schema   int       `json:"schema"`
			Findings []finding `json:"findings"`
		}{1, d.findings}
		if err := d.a.out.object(out); err != nil {
			return err
		}
	} else {
		on := d.a.colors(d.a.p.Out)
		for _, f := range d.findings {
			style := map[string]string{"ok": "32", "warn": "33", "bad": "31"}[f.Grade]
			d.a.out.printf("%s %-12s %s\n", paint(on, style, fmt.Sprintf("%-4s", f.Grade)), f.Check, escape(f.Text))
			if f.Fix != "" {
				d.a.out.printf("     %-12s fix: %s\n", "", escape(f.Fix))
			}
		}
	}
	switch {
	case count["bad"] > 0:
		return &failure{exit: exitNo, silent: true}
	case count["warn"] > 0 && strict:
		return &failure{exit: exitWarnings, silent: true}
	}
	return nil
}
