package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
	"github.com/idempo/idempo/operator"
)

// showFlags name one key, by reference or by its parts.
type showFlags struct {
	tenant, operation, id, principal string
	resource, trace                  string
	body                             bool
}

func (a *app) keysShowCommand() *cobra.Command {
	var s showFlags
	c := &cobra.Command{
		Use: "show [REFERENCE]", Short: "show what became of one key: state, attempts, result, ends",
		Long: "Show one key, by its reference as lists, logs and problems print it, or by tenant, operation and the caller's key. " +
			"What it made, or the trace of its run, has no index: keys are looked through, the newest first, until one is found. " +
			"The stored answer is shown with --body only, byte for byte.",
		Example:     "idempo keys show k_mfrggzdfmztwq2lknnwg23tpoa\nidempo keys show --tenant default --operation gateway.upstream --id order-81 --json",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		Args:        cobra.MaximumNArgs(1),
		RunE:        func(c *cobra.Command, args []string) error { return a.keysShow(c, s, args) },
	}
	f := c.Flags()
	f.StringVar(&s.tenant, "tenant", "", "`tenant` of the key; the gateway's global one is default")
	f.StringVar(&s.operation, "operation", "", "`name` of the operation; the gateway's begin with gateway.")
	f.StringVar(&s.id, "id", "", "the `key` as the caller sent it")
	f.StringVar(&s.principal, "principal", "", "`principal` of the key, where keys are kept apart by it")
	f.StringVar(&s.resource, "resource", "", "what was made or referred to, `type:id`: looked for, the newest first")
	f.StringVar(&s.trace, "trace", "", "trace `id` of the run: looked for, the newest first")
	f.BoolVar(&s.body, "body", false, "write the stored answer, nothing else")
	f.Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

// notFound is the one answer for keys that are not there and for keys that one may not see.
func notFound() *failure {
	return &failure{exit: exitNo, code: "not_found", message: "no such key"}
}

func (a *app) keysShow(c *cobra.Command, s showFlags, args []string) error {
	search, err := s.search(args)
	if err != nil {
		return err
	}
	var target operator.Target
	if search == nil {
		if target, err = s.target(args); err != nil {
			return err
		}
	}
	ctx, cancel := a.interruptible(c)
	defer cancel()
	d, err := a.desk(ctx, c, "", false)
	if err != nil {
		return err
	}
	defer d.close()
	if search != nil {
		if target.Ref, err = a.searched(ctx, d, *search); err != nil || target.Ref == "" {
			return interrupted(ctx, err)
		}
	}
	if target.Ref == "" { // a digest key that is not at hand is no "no such key"
		if _, err := stored(d.settings, d.store, target.Key, target.Principal); err != nil {
			return err
		}
	}
	shown, err := d.Show(ctx, operator.ShowParams{By: d.by, Target: target})
	if err != nil {
		return interrupted(ctx, err)
	}
	switch {
	case s.body:
		return a.writeBody(ctx, d.settings, d.store, s, shown.Record)
	case a.json:
		return a.out.object(operator.DetailOf(shown))
	}
	a.printRecord(shown)
	return a.out.failed
}

// stored is a key as the store has it: with its digest under each digest key.
func stored(c *config.Settings, store *database.Store, key idempo.Key, principal string) ([]idempo.Key, error) {
	secrets, err := server.DigestKeys(c)
	if err != nil {
		return nil, &failure{exit: exitUnsafe, code: "digest_key_missing", message: err.Error(), hint: "look the key up by its reference, or name the digest key in security.digest_keys"}
	}
	e, err := idempo.New(store.Store, idempo.Config{DigestKeys: secrets, Operations: []idempo.Operation{{Name: key.Operation, Guard: idempo.GuardLeased}}})
	if err != nil {
		return nil, usage("%v", err)
	}
	keys := e.Stored(key, principal)
	if keys == nil {
		return nil, usage("--tenant, --operation and --id do not make a legal key")
	}
	return keys, nil
}

func (a *app) writeBody(ctx context.Context, c *config.Settings, store *database.Store, s showFlags, r idempo.Record) error {
	full, err := store.Store.Lookup(ctx, idempo.LookupParams{Key: r.Key})
	if err == nil && full.Sealed != "" {
		full, err = decrypted(ctx, c, store, s)
	}
	switch {
	case err != nil:
		return interrupted(ctx, err)
	case full.State == "":
		return notFound()
	case full.State != idempo.StateCompleted || !full.BodyKept:
		return &failure{exit: exitNo, code: "not_found", message: "no answer is stored for this key"}
	}
	_, err = a.out.Write(full.Result.Body)
	return err
}

// decrypted looks a key up as the engine does, which binds what it decrypts to the caller's key.
func decrypted(ctx context.Context, c *config.Settings, store *database.Store, s showFlags) (idempo.Record, error) {
	if s.id == "" {
		return idempo.Record{}, &failure{exit: exitUsage, code: "usage", message: "the stored answer is encrypted: only its key opens it",
			hint: "name the key by --tenant, --operation and --id"}
	}
	secrets, err := server.DigestKeys(c)
	if err != nil {
		return idempo.Record{}, err
	}
	e, err := idempo.New(store.Store, idempo.Config{DigestKeys: secrets, EncryptionKeys: server.EncryptionKeys(c),
		Operations: []idempo.Operation{{Name: s.operation, Guard: idempo.GuardLeased}}})
	if err != nil {
		return idempo.Record{}, err
	}
	r, err := e.LookupFor(ctx, idempo.Key{Tenant: s.tenant, Operation: s.operation, ID: s.id}, s.principal)
	if bad, ok := errors.AsType[*idempo.Error](err); ok && bad.Code == "result_unreadable" {
		return r, &failure{exit: exitNo, code: "result_unreadable", message: bad.Error()}
	}
	return r, err
}

// printRecord writes a record for a person, in at most 80 columns where the data allows it.
func (a *app) printRecord(shown operator.Shown) {
	r, earlier := shown.Record, shown.Attempts
	row := func(name, format string, args ...any) {
		a.out.line(fmt.Sprintf("%-12s ", name) + escape(fmt.Sprintf(format, args...)))
	}
	row("key", "%s", r.Ref())
	row("tenant", "%s", r.Key.Tenant)
	row("operation", "%s", r.Key.Operation)
	if h := shown.Held; !h.IsZero() {
		row("running", "%s", "in an open transaction, not committed")
		row("", "session %s, application %s, since %s", h.Session, orDash(h.Application), a.moment(h.Since))
		if r.CreatedAt.IsZero() {
			for _, n := range shown.Next {
				row("next", "%s", n.Text)
			}
			return
		}
	}
	row("state", "%s", stateText(r))
	if r.State == operator.StateUnreadable {
		row("why", "the row was garbled, or a newer release wrote it: nobody runs, answers, changes or sweeps it")
	} else {
		row("guard", "%s, on_crash %s", r.Guard, r.OnCrash)
	}
	row("surface", "%s", orDash(r.Surface))
	row("fingerprint", "%s", orDash(recipeText(r.Recipe)))
	for _, e := range earlier {
		if e.State == idempo.StatePending {
			e.State = "ended without an answer"
		}
		a.printAttempt(e)
	}
	if r.Attempt > 0 && !slices.ContainsFunc(earlier, func(e idempo.Record) bool { return e.Attempt == r.Attempt }) {
		a.printAttempt(r)
	}
	if r.State == idempo.StateCompleted || r.State == idempo.StateExpired {
		row("result", "%s", resultText(r))
	}
	if !r.Result.Resource.IsZero() {
		row("resource", "%s:%s", r.Result.Resource.Type, r.Result.Resource.ID)
	}
	for _, ref := range r.References {
		row("reference", "%s:%s", ref.Type, ref.ID)
	}
	if r.Note != "" {
		row("note", "%s", r.Note)
	}
	if r.State == idempo.StateCompleted {
		row("kept until", "%s", a.moment(r.ExpiresAt))
	}
	if r.State == idempo.StateCompleted || r.State == idempo.StateExpired {
		if r.GoneAt.IsZero() {
			row("tombstone", "for ever")
		} else {
			row("tombstone", "until %s", a.moment(r.GoneAt))
		}
	}
	if r.Trace != "" {
		row("trace", "%s", r.Trace)
	}
	a.printAudit(shown.Audit)
	a.printNext(shown.Next)
}

// printAudit writes what operators did to one thing.
func (a *app) printAudit(entries []operator.Entry) {
	for _, e := range entries {
		outcome := e.Outcome
		if e.Code != "" {
			outcome = e.Code
		}
		a.out.line(fmt.Sprintf("%-12s %s  %s  %s", "audit", a.moment(e.At), e.Action, outcome))
		a.out.line(wrap(escape(entryText(e)), strings.Repeat(" ", 13), 80))
	}
}

// printNext writes what can become of it.
func (a *app) printNext(steps []operator.NextStep) {
	for _, n := range steps {
		a.out.line(strings.Replace(wrap(escape(n.Text), strings.Repeat(" ", 13), 80), strings.Repeat(" ", 13), fmt.Sprintf("%-12s ", "next"), 1))
		if n.Command != "" {
			a.out.line(strings.Repeat(" ", 15) + escape(n.Command))
		}
	}
}

func (a *app) printAttempt(r idempo.Record) {
	a.out.line(escape(fmt.Sprintf("%-12s %d, generation %d: %s", "attempt", r.Attempt, r.Generation, r.State)))
	part := func(name, text string) {
		if text != "" && text != "–" {
			a.out.line(escape(fmt.Sprintf("  %-10s %s", name, text)))
		}
	}
	part("claimed", a.moment(r.ClaimedAt))
	part("started", a.moment(r.StartedAt))
	part("lease", a.moment(r.LeaseUntil))
	part("finished", a.moment(r.CompletedAt))
	part("owner", r.Owner)
}

func stateText(r idempo.Record) string {
	s := string(r.State)
	if r.Now.IsZero() {
		return s
	}
	return s + ", changed " + ago(r.Now.Sub(r.ChangedAt))
}

// recipeText is a fingerprint recipe without what only machines need.
func recipeText(recipe string) string {
	if name, rest, ok := strings.Cut(recipe, ";k="); ok {
		key, _, _ := strings.Cut(rest, ";")
		return name + ", digest key " + key
	}
	return recipe
}

func resultText(r idempo.Record) string {
	text := fmt.Sprintf("status %d, %d bytes", r.Result.Status, r.BodySize)
	if r.Result.Failing {
		text += ", failing"
	}
	if r.State == idempo.StateCompleted && !r.BodyKept && r.BodySize > 0 {
		text += ", body not kept"
	}
	if r.Sealed != "" {
		text += ", encrypted under " + r.Sealed
	}
	return text
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
