package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/gate"
	"github.com/idempo/idempo/cmd/idempo/internal/promise"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/gateway"
	"github.com/idempo/idempo/operator"
)

// tokenFile stands in the data folder and lets its reader log in to the dashboard.
const tokenFile = "admin.token"

// TokenFile is where the token of the dashboard stands.
func TokenFile(c *config.Settings) string { return filepath.Join(c.DataDir, tokenFile) }

// adminToken returns the token in the data folder, made there on first start.
func adminToken(c *config.Settings) (token string, made bool, err error) {
	file := TokenFile(c)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if made, err = writeOnce(file, []byte(rand.Text()+rand.Text()+"\n")); err != nil {
			return "", false, fmt.Errorf("dashboard token: %w", err)
		}
		b, err = os.ReadFile(file) // the file counts, whoever wrote it
	}
	if err != nil {
		return "", false, fmt.Errorf("dashboard token: %w", err)
	}
	if token = strings.TrimSpace(string(b)); len(token) < 16 {
		return "", false, fmt.Errorf("dashboard token: %s is no token: remove it, and another is made", file)
	}
	return token, made, nil
}

// openPages makes the dashboard and its login.
func (s *Server) openPages() (err error) {
	c, d := s.settings, s.settings.Dashboard
	g := gate.Config{Mode: d.Auth, Header: d.Header, Trusted: d.TrustedProxies, Users: map[string]gate.User{}, Actor: localUser(), Secure: strings.HasPrefix(d.PublicURL, "https:")}
	for name, u := range d.Users {
		g.Users[name] = gate.User{Password: string(u.Password), Role: operator.Role(u.Role), Tenants: u.Tenants}
	}
	if d.Auth == "token" {
		if g.Token, s.madeToken, err = adminToken(c); err != nil {
			return err
		}
	}
	if s.gate, err = gate.New(g); err != nil {
		return err
	}
	ops, err := operator.New(s.store.Store, operator.Config{Engine: s.engine, Retention: c.Engine.Retention, Tombstone: c.Engine.Tombstone, ObserveFunc: s.metrics.CountAction})
	if err != nil {
		return err
	}
	pages := dashboard.Config{Operator: ops, Authorize: s.gate.Authorize, Hosts: d.AllowedHosts, Operations: s.engine.Operations, Meter: s.meter, Product: s.options.Version, Log: s.log,
		Settings: s.effective, Contract: s.promised, Report: s.observed}
	if d.Auth == "token" {
		pages.Login = s.gate
	}
	ui, err := dashboard.New(pages)
	if err != nil {
		return err
	}
	s.admin.pages.Store(ui)
	s.metrics.ShowStore(s.meter, ui.Clients)
	s.metrics.ShowOperations(s.engine.Operations)
	return nil
}

// effective is what the process runs with now, and why the last reload changed nothing.
func (s *Server) effective() (out []dashboard.Setting) {
	if err := s.serving.lastError(); err != nil {
		out = append(out, dashboard.Setting{Path: "last reload", Value: err.Error(), Origin: "the settings below stay"})
	}
	for _, set := range s.serving.current().settings.List() {
		out = append(out, dashboard.Setting{Path: set.Path, Value: set.Value, Origin: set.Origin})
	}
	return out
}

// promised is what the gateway promises now.
func (s *Server) promised() *contract.Contract {
	now := s.serving.current()
	var routes []gateway.DeclaredRoute
	if now.gateway != nil {
		routes = now.gateway.Declared()
	}
	return promise.Of(now.settings, routes, s.options.Version)
}

// observed is the report that contract.report names; nil where it names none.
func (s *Server) observed() (*contract.Report, error) {
	file := s.serving.current().settings.Contract.Report
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return contract.ReadReport(b)
}

// closePages ends the live streams.
func (s *Server) closePages() {
	if ui := s.admin.pages.Load(); ui != nil {
		ui.Close()
	}
}

// localUser is the name that a login by token proposes.
func localUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "operator"
}
