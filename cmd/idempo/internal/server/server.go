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
	"github.com/idempo/idempo/cmd/idempo/internal/gate"
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
	// Load reads the configuration again, for Reload; nil: it cannot be.
	Load       func() (*config.Settings, config.Problems, error)
	WatchEvery time.Duration // pause between two looks at the file; 0: 5 s
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

	lock      *versionLock
	store     *database.Store
	health    *storeHealth
	engine    *idempo.Engine
	serving   epochs
	hooks     *webhook.Receiver // nil: no webhook sources
	keys      keyring
	madeKey   bool
	gate      *gate.Gate
	meter     *operator.Meter
	madeToken bool

	reloading  sync.Mutex
	seen       string // content of the file that settings are from
	level      *slog.LevelVar
	life       context.Context    // of what runs beside requests
	background context.CancelFunc // ends it
	work       sync.WaitGroup
	stopped    chan struct{}
}

// New returns a server that has done nothing yet.
func New(c *config.Settings, o Options) *Server {
	s := &Server{settings: c, options: o, stopped: make(chan struct{}), level: levelOf(c.Log)}
	s.log = newLog(c.Log, s.level, o)
	s.seen = content(c.File)
	s.metrics = idemprometheus.New(idemprometheus.Config{MaxOperations: c.Metrics.MaxOperations, Version: o.Version, Revision: o.Revision, Process: true})
	s.health = &storeHealth{}
	s.admin = admin{store: s.health.up, metrics: s.metrics, reload: s.Reload, problem: s.serving.lastError, breakers: s.breakers}
	s.admin.use(c)
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

func newLog(c config.Log, level slog.Leveler, o Options) *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	h := &slog.HandlerOptions{Level: level}
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
	if len(c.Gateway.Routes) == 0 && len(c.Webhooks.Config.Sources) == 0 && len(c.Relays) == 0 {
		return errors.New("nothing to serve: give --upstream URL, or gateway.routes, webhooks.sources or relays in a configuration file")
	}
	for _, r := range c.Relays {
		if r.To == "stdout:" {
			return errors.New("relays: stdout: is for idempo relay; serve publishes to brokers")
		}
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
	if err := s.openPages(); err != nil {
		return err
	}
	s.life, s.background = context.WithCancel(context.Background())
	s.work.Go(func() { _ = s.engine.Run(s.life) })
	s.work.Go(func() { _ = s.meter.Run(s.life) })
	s.work.Go(func() { s.health.watch(s.life, s.store) })
	s.publish(s.life)
	s.serveFront(s.life)
	if c.File != "" && c.Reload.Watch && s.options.Load != nil {
		s.work.Go(func() { s.watch(s.life, c.File, s.seen) })
	}
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
	s.meter = operator.NewMeter(operator.MeterConfig{Store: s.store.Store, Log: s.log})
	config.Logger, config.Observer = s.log, observers{s.metrics, s.health, s.meter, eventLog{s.log}}
	if s.engine, err = idempo.New(s.store.Store, config); err != nil {
		return err
	}
	if err := s.receive(); err != nil {
		return err
	}
	var g *gateway.Gateway
	if len(c.Gateway.Routes) > 0 {
		if g, err = gateway.New(s.engine, s.watched(c.Gateway)); err != nil {
			return err
		}
	}
	s.serving.swap(&epoch{settings: c, gateway: g})
	return nil
}

// breakers says how the gateway's upstreams are; nothing before there is one.
func (s *Server) breakers() map[string]string {
	states := map[string]string{}
	if e := s.serving.current(); e != nil && e.gateway != nil {
		for _, u := range e.gateway.Status().Upstreams {
			states[u.Name] = u.Breaker
		}
	}
	return states
}

// abandon undoes a start that failed.
func (s *Server) abandon() {
	if s.background != nil {
		s.background()
	}
	s.closePages()
	if s.adminServer != nil {
		_ = s.adminServer.Close()
	}
	if e := s.serving.current(); e != nil && e.gateway != nil {
		e.gateway.Close()
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
	s.reloading.Lock() // no other configuration from here on
	defer s.reloading.Unlock()
	now := s.serving.current()
	s.log.Info("draining", "grace", now.settings.Shutdown.Grace.String())
	ctx, cancel := context.WithTimeout(ctx, now.settings.Shutdown.Grace)
	defer cancel()
	pause(ctx, now.settings.Shutdown.Delay)
	s.front.SetKeepAlivesEnabled(false)
	if now.gateway != nil {
		left = now.gateway.Drain(ctx)
	}
	if s.front.Shutdown(ctx) != nil { // unkeyed requests and streams had their time as well
		_ = s.front.Close()
	}
	left += s.engine.Drain(ctx)
	s.background()
	if now.gateway != nil {
		now.gateway.Close()
	}
	s.closePages()
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
