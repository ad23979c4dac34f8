package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	idemprometheus "github.com/idempo/idempo/contrib/prometheus"
	"github.com/idempo/idempo/gateway"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/webhook"
)

// Options are what a process brings besides its settings.
type Options struct {
	Log      io.Writer // log lines; nil: none
	Terminal bool      // a person reads the log: format auto is then text
	Version  string
	Revision string
}

// Server is the process behind `idempo serve`.
type Server struct {
	settings *config.Settings
	options  Options
	log      *slog.Logger
	metrics  *idemprometheus.Metrics

	admin       admin
	adminServer *http.Server
	front       *http.Server
	listeners   [2]net.Listener // gateway, admin

	lock    *versionLock
	store   *database.Store
	health  *storeHealth
	engine  *idempo.Engine
	gateway *gateway.Gateway  // nil: no routes
	hooks   *webhook.Receiver // nil: no webhook sources
	keys    keyring
	madeKey bool

	background context.CancelFunc // ends what runs beside requests
	work       sync.WaitGroup
	stopped    chan struct{}
}

// New returns a server that has done nothing yet.
func New(c *config.Settings, o Options) *Server {
	s := &Server{settings: c, options: o, stopped: make(chan struct{})}
	s.log = newLog(c.Log, o)
	s.metrics = idemprometheus.New(idemprometheus.Config{MaxOperations: c.Metrics.MaxOperations, Version: o.Version, Revision: o.Revision, Process: true})
	s.health = &storeHealth{}
	s.admin = admin{store: s.health.up, requires: c.Ready.RequiresStore, token: string(c.Metrics.Token), metrics: s.metrics, digest: digest(c),
		breakers: func() map[string]string { return nil }}
	return s
}

// digest tells two configurations apart; secrets are in it as ***.
func digest(c *config.Settings) string {
	h := sha256.New()
	for _, set := range c.List() {
		fmt.Fprintf(h, "%q %q\n", set.Path, set.Value)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func newLog(c config.Log, o Options) *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	h := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "text" || c.Format == "auto" && o.Terminal {
		return slog.New(newQuiet(slog.NewTextHandler(o.Log, h)))
	}
	return slog.New(newQuiet(slog.NewJSONHandler(o.Log, h)))
}

// PortInUse is an address that is taken.
type PortInUse struct{ Key, Address string }

// Error names the address and the setting.
func (p *PortInUse) Error() string {
	return fmt.Sprintf("%s: the address %s is in use by another program", p.Key, p.Address)
}

// Start listens, opens the store and begins to serve. On error nothing is left running, and nothing was made that a later start
// could not use. ctx bounds the start, not the serving; Stop ends it.
func (s *Server) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.abandon()
		}
	}()
	c := s.settings
	if len(c.Gateway.Routes) == 0 && len(c.Webhooks.Config.Sources) == 0 {
		return errors.New("nothing to serve: give --upstream URL, or gateway.routes or webhooks.sources in a configuration file")
	}
	if len(c.Gateway.Routes) > 0 {
		if err := c.Gateway.CheckListen(c.Listen.Gateway, c.ExplicitTenant()); err != nil {
			return err
		}
	}
	if s.listeners[0], err = listen("listen.gateway", c.Listen.Gateway); err != nil {
		return err
	}
	if s.listeners[1], err = listen("listen.admin", c.Listen.Admin); err != nil {
		return err
	}
	s.adminServer = &http.Server{Handler: &s.admin, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(io.Discard, "", 0)}
	s.work.Go(func() { _ = s.adminServer.Serve(s.listeners[1]) })
	s.log.Info("starting", "gateway", s.Addr().String(), "admin", s.AdminAddr().String(), "store", database.Name(c.Store))
	if fix, yes := database.Unverified(c.Store); yes {
		s.log.Warn("the database is reached over the network without verified TLS", "store", database.Name(c.Store), "fix", fix)
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.assemble(); err != nil {
		return err
	}
	bg, cancel := context.WithCancel(context.Background())
	s.background = cancel
	s.work.Go(func() { _ = s.engine.Run(bg) })
	s.work.Go(func() { s.health.watch(bg, s.store) })
	s.serveFront(bg)
	s.admin.set(serving)
	s.log.Info("serving", "gateway", s.Addr().String(), "admin", s.AdminAddr().String(), "store", s.store.Name, "version", s.options.Version)
	return nil
}

func listen(key, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &PortInUse{Key: key, Address: address}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return l, nil
}

// open gets the digest keys and the store together.
func (s *Server) open(ctx context.Context) (err error) {
	c := s.settings
	if c.Store.SQLite != "" {
		if s.lock, err = lockVersion(c.Store.SQLite, s.options.Version); err != nil {
			return err
		}
	}
	if s.keys, err = digestKeys(c); err != nil {
		return err
	}
	if s.store, err = database.Open(ctx, c.Store, s.log); err != nil {
		return err
	}
	if s.keys.fresh != nil {
		if s.madeKey, err = s.keys.commit(); err != nil {
			return err
		}
		if s.keys, err = digestKeys(c); err != nil { // the file counts, whoever wrote it
			return err
		}
	}
	keeper, ok := s.store.Store.(operator.DigestKeeper)
	if !ok {
		return nil
	}
	found, err := keeper.KeepDigestKeys(ctx, s.keys.params())
	if err == nil {
		err = refusal(found)
	}
	if err != nil && s.madeKey {
		err = errors.Join(err, os.Remove(s.keys.file)) // no record stands under it
	}
	return err
}

// assemble makes the engine and what stands on it.
func (s *Server) assemble() (err error) {
	c := s.settings
	config := engineConfig(c, s.keys.secrets)
	config.Logger, config.Observer = s.log, observers{s.metrics, s.health, eventLog{s.log}}
	if s.engine, err = idempo.New(s.store.Store, config); err != nil {
		return err
	}
	if err := s.receive(); err != nil || len(c.Gateway.Routes) == 0 {
		return err
	}
	g := c.Gateway
	g.Log = s.log
	g.Observe = func(ev gateway.Event) {
		s.metrics.ObserveGateway(ev)
		gatewayLog(s.log, ev)
	}
	if s.gateway, err = gateway.New(s.engine, g); err != nil {
		return err
	}
	s.admin.breakers = func() map[string]string {
		states := map[string]string{}
		for _, u := range s.gateway.Status().Upstreams {
			states[u.Name] = u.Breaker
		}
		return states
	}
	return nil
}

// abandon undoes a start that failed.
func (s *Server) abandon() {
	if s.background != nil {
		s.background()
	}
	if s.adminServer != nil {
		_ = s.adminServer.Close()
	}
	if s.gateway != nil {
		s.gateway.Close()
	}
	for _, l := range s.listeners {
		if l != nil {
			_ = l.Close()
		}
	}
	s.work.Wait()
	if s.store != nil {
		_ = s.store.Close()
	}
	s.lock.release()
}

// Addr is the address that callers come to.
func (s *Server) Addr() net.Addr { return s.listeners[0].Addr() }

// AdminAddr is the address of health and metrics.
func (s *Server) AdminAddr() net.Addr { return s.listeners[1].Addr() }

// Stop ends the process in order: not ready, shutdown.delay later no new keyed request, running ones finish and are answered,
// then the listeners, the engine and the store. It returns how many runs were cut; they settle by their on_crash. ctx ends the
// waiting at once; shutdown.grace, delay included, ends it by itself.
func (s *Server) Stop(ctx context.Context) (left int) {
	s.admin.set(draining)
	s.log.Info("draining", "grace", s.settings.Shutdown.Grace.String())
	ctx, cancel := context.WithTimeout(ctx, s.settings.Shutdown.Grace)
	defer cancel()
	pause(ctx, s.settings.Shutdown.Delay)
	s.front.SetKeepAlivesEnabled(false)
	if s.gateway != nil {
		left = s.gateway.Drain(ctx)
	}
	if s.front.Shutdown(ctx) != nil { // unkeyed requests and streams had their time as well
		_ = s.front.Close()
	}
	left += s.engine.Drain(ctx)
	s.background()
	if s.gateway != nil {
		s.gateway.Close()
	}
	_ = s.adminServer.Close()
	s.work.Wait()
	if err := s.store.Close(); err != nil {
		s.log.Error("closing the store", "error", err.Error())
	}
	s.lock.release()
	s.log.Info("stopped", "cut", left)
	return left
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
