package cli

import (
	"context"
	"errors"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
	"github.com/idempo/idempo/operator"
)

// desk is the operator service over the configured store, and who sits at it.
type desk struct {
	*operator.Service
	by       operator.Principal
	settings *config.Settings
	store    *database.Store
	engine   *idempo.Engine // nil where the digest key is not at hand
	end      func()
}

// close gives the store back.
func (d *desk) close() {
	d.end()
	_ = d.store.Close()
}

// desk opens the operator service. Who has the store has every right: the role is admin.
//
// With acts it knows what the configuration declares of operations; to look at keys nobody needs that.
func (a *app) desk(ctx context.Context, c *cobra.Command, actor string, acts bool) (*desk, error) {
	s, store, err := a.opened(ctx, c)
	if err != nil {
		return nil, err
	}
	d := &desk{settings: s, store: store, end: func() {}, by: operator.Principal{Actor: actor, Role: operator.RoleAdmin, Channel: "cli"}}
	if actor == "" {
		d.by.Actor = localActor()
	}
	if acts {
		if e, end, err := server.OperatorEngine(s, store.Store); err == nil { // without its digest key a key can still be settled
			d.engine, d.end = e, end
		}
	}
	d.Service, err = operator.New(store.Store, operator.Config{Engine: d.engine, Retention: s.Engine.Retention, Tombstone: s.Engine.Tombstone,
		StoredFunc: func(key idempo.Key, principal string) []idempo.Key {
			keys, _ := stored(s, store, key, principal)
			return keys
		}})
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// atDesk opens the operator service for reading, and ends f at the first signal.
func (a *app) atDesk(c *cobra.Command, f func(context.Context, *desk) error) error {
	ctx, cancel := a.interruptible(c)
	defer cancel()
	d, err := a.desk(ctx, c, "", false)
	if err != nil {
		return err
	}
	defer d.close()
	return interrupted(ctx, f(ctx, d))
}

// atDeskOf opens the operator service for an actor, as desk does. The first signal closes stop, the second ends f.
func (a *app) atDeskOf(c *cobra.Command, actor string, acts bool, f func(ctx context.Context, stop <-chan struct{}, d *desk) error) error {
	ctx, stop, cancel := a.twice(c)
	defer cancel()
	d, err := a.desk(ctx, c, actor, acts)
	if err != nil {
		return err
	}
	defer d.close()
	return interrupted(ctx, f(ctx, stop, d))
}

// localActor is the user of the operating system at this host.
func localActor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return name + "@" + host
}

// target checks how a key is named and returns it.
func (s showFlags) target(args []string) (operator.Target, error) {
	switch byParts := s.tenant != "" || s.operation != "" || s.id != ""; {
	case len(args) == 1 && byParts:
		return operator.Target{}, usage("give a reference, or --tenant --operation --id, not both")
	case len(args) == 1:
		if _, err := operator.ParseRef(args[0]); err != nil {
			return operator.Target{}, usage("%s is %v", quoteWord(args[0]), err)
		}
		return operator.Target{Ref: strings.ToLower(args[0])}, nil
	case s.tenant == "" || s.operation == "" || s.id == "":
		return operator.Target{}, usage("name the key: its reference, or --tenant, --operation and --id")
	}
	return operator.Target{Key: idempo.Key{Tenant: s.tenant, Operation: s.operation, ID: s.id}, Principal: s.principal}, nil
}

// refusal is the operator's refusal in the words of the command line.
func refusal(e *operator.Error) *failure {
	f := &failure{exit: exitNo, code: e.Code, message: e.Error()}
	switch e.Code {
	case operator.CodeNotFound:
		f = notFound()
		f.message = "no such " + e.Thing()
		return f
	case operator.CodeConfirmNeeded, operator.CodeInvalid, operator.CodeUnsupported:
		f.exit = exitUsage
	}
	var lines []string
	if e.Flag != "" {
		lines = append(lines, "add "+e.Flag)
	}
	for _, n := range e.Allowed {
		if n.Command != "" && e.Flag == "" {
			lines = append(lines, n.Command)
		}
	}
	f.hint = strings.Join(lines, "\n  ")
	return f
}

// denied reports whether the store refused a write because of rights, and says which are missing.
func denied(err error) (*failure, bool) {
	e, ok := errors.AsType[*idempo.Error](err)
	if !ok || !strings.Contains(e.Hint, "--grants") && !strings.Contains(e.Error(), "read-only") {
		return nil, false
	}
	return &failure{exit: exitNo, code: "forbidden", message: "this database role may only read: " + e.Error(),
		hint: "grant it select, insert, update, delete on records and attempts, and insert on audit: idempo migrate print --grants ROLE"}, true
}
