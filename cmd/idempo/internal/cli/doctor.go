package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
	"github.com/idempo/idempo/operator"
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
		Long: "Look at configuration, store, schema, digest keys, files and keys in doubt, and say of each\n" +
			"whether it is ok, with the fix where it is not. It changes nothing.",
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
	case len(secrets) > 1:
		d.warn("digest keys", "drop the last one once no record lives under it", "%d keys: a rotation is under way", len(secrets))
	default:
		d.ok("digest keys", "one, id %s", secrets[0].ID)
	}
	if len(s.Keys) > 0 || runtime.GOOS == "windows" {
		return
	}
	if st, err := os.Stat(server.DigestKeyFile(s)); err == nil && st.Mode().Perm()&0o077 != 0 {
		d.bad("files", "chmod 600 "+server.DigestKeyFile(s), "others can read %s", server.DigestKeyFile(s))
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

func (d *doctor) store(ctx context.Context, s *config.Settings) {
	m, err := database.Schemas(s.Store)
	if err != nil {
		d.bad("store", "check store in the configuration", "%v", err)
		return
	}
	defer m.Close()
	st, err := m.Status(ctx)
	switch {
	case err != nil:
		d.bad("store", "check that the database runs and lets this user in", "%v", err)
		return
	case st.Newer || st.Problem != nil:
		d.bad("schema", "install the newer release", "version %d, this binary knows %d", st.Version, st.Known)
		return
	case st.Required:
		d.bad("schema", "idempo migrate up", "version %d, this binary needs %d", st.Version, st.Known)
		return
	}
	if len(st.Pending) > 0 {
		d.warn("schema", "idempo migrate up", "version %d, this binary knows %d: what was added since is missing", st.Version, st.Known)
	} else {
		d.ok("schema", "version %d", st.Version)
	}
	var weak bytes.Buffer
	open := s.Store
	open.AutoMigrate, open.Strict = false, false
	store, err := database.Open(ctx, open, slog.New(slog.NewTextHandler(&weak, nil)))
	if err != nil {
		d.bad("store", "see the message", "%v", err)
		return
	}
	defer store.Close()
	if weak.Len() > 0 {
		d.bad("durability", "see the message", "%s", strings.TrimSpace(weak.String()))
	} else {
		d.ok("durability", "nothing that loses acknowledged records")
	}
	d.latency(ctx, store)
	d.doubts(ctx, store)
}

// latency asks five times for a key that is not there.
func (d *doctor) latency(ctx context.Context, store *database.Store) {
	var took []time.Duration
	for range 5 {
		start := time.Now()
		_, err := store.Lookup(ctx, idempo.LookupParams{Key: idempo.Key{Tenant: "idempo", Operation: "doctor", ID: strings.Repeat("\x00", 32)}, WithoutBody: true})
		if err != nil {
			d.bad("store", "see the message", "%v", err)
			return
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	if median := took[2]; median > 100*time.Millisecond {
		d.warn("latency", "bring the store nearer", "%d ms for one read", median.Milliseconds())
	} else {
		d.ok("latency", "under 100 ms for one read")
	}
}

// doubts counts keys in doubt, up to a page, and compares the clocks on the way.
func (d *doctor) doubts(ctx context.Context, store *database.Store) {
	l, ok := store.Store.(operator.Lister)
	if !ok {
		return
	}
	const most = 1000
	page, err := l.List(ctx, operator.FindParams{State: idempo.StateInDoubt, Limit: most})
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			d.bad("in doubt", "see the message", "%v", err)
		}
		return
	}
	if len(page.Records) == 0 {
		d.ok("in doubt", "no key")
		return
	}
	var oldest time.Duration
	for _, r := range page.Records {
		oldest = max(oldest, r.Now.Sub(r.ChangedAt))
	}
	count := fmt.Sprint(len(page.Records))
	if page.Next != "" {
		count = fmt.Sprintf("over %d", most)
	}
	d.warn("in doubt", "idempo keys list --state in_doubt", "%s, the oldest since %s", count, strings.TrimSuffix(ago(oldest), " ago"))
	if skew := time.Since(page.Records[0].Now).Abs(); skew > 5*time.Second {
		d.warn("clock", "synchronise the clocks", "this machine and the store differ by %d s", skew/time.Second)
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
