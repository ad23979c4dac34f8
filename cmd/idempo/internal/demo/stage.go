package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

// Options say how a demo is played.
type Options struct {
	Program string   // what is executed for the services; empty: this program
	Args    []string // before the hidden command
	Env     []string
	Seed    uint64
	Version string
	Browser bool // for a Page: the crash waits for a person, and the dashboard, on loopback, asks for no login
}

// Stage is the two services, the gateway and the wires between them.
type Stage struct {
	options Options
	dir     string
	start   launcher
	random  *rand.Rand

	bare, behind *process
	gateway      *server.Server
	bareWire     *cutter
	gatewayWire  *cutter
}

const gatewayFile = `version: 1
engine: {wait: 5s, probe_every: %s}
dashboard: {auth: %s}
shutdown: {grace: 5s}
gateway:
  tenant: {global: true}
  upstreams:
    payments: {urls: ["http://%s"]}
  routes:
    - {match: "/", upstream: payments}
    - match: "POST /v1/payments"
      upstream: payments
      operation: create-payment
      resource: {type: payment, id: /id}
      on_crash: probe
      probe:
        request: "GET /v1/payments?ref={key}"
        happened: {status: [200], json: {/count: 1}}
        not_happened: {status: [200], json: {/count: 0}}
        result: {status: 201, body: /items/0}
        settle: 1s
`

// Open starts everything. The caller closes the stage, whatever happened.
func Open(ctx context.Context, o Options) (s *Stage, err error) {
	s = &Stage{options: o, random: rand.New(rand.NewPCG(o.Seed, 0))}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "idempo-demo-"); err != nil {
		return s, err
	}
	s.start = launcher{program: o.Program, args: o.Args, env: o.Env}
	if s.start.program == "" {
		if s.start.program, err = os.Executable(); err != nil {
			return s, err
		}
	}
	if s.bare, err = s.start.start(s.child("bare", "127.0.0.1:0")); err != nil {
		return s, err
	}
	if s.behind, err = s.start.start(s.child("guarded", "127.0.0.1:0")); err != nil {
		return s, err
	}
	every, auth := "1s", "token"
	if o.Browser {
		every, auth = "1h", "none"
	}
	c, _, err := config.Load(config.Source{File: filepath.Join(s.dir, "idempo.yaml"), Content: fmt.Appendf(nil, gatewayFile, every, auth, s.behind.address), DataDir: s.dir,
		Overrides: []config.Override{{Path: "listen.gateway", Value: "127.0.0.1:0", Origin: "demo"}, {Path: "listen.admin", Value: "127.0.0.1:0", Origin: "demo"}}})
	if err != nil {
		return s, err
	}
	gw := server.New(c, server.Options{Version: o.Version})
	if err := gw.Start(ctx); err != nil {
		return s, err
	}
	s.gateway = gw
	if s.bareWire, err = newCutter(s.bare.address); err != nil {
		return s, err
	}
	s.gatewayWire, err = newCutter(s.gateway.Addr().String())
	return s, err
}

func (s *Stage) child(ledger, listen string) Child {
	return Child{Kind: "payments", Dir: s.dir, Ledger: ledger + ".ledger", Listen: listen}
}

// revive starts a service again, at its old address, once it has died.
func (s *Stage) revive(p **process, ledger string) error {
	select {
	case <-(*p).exited:
	default:
		return nil
	}
	again, err := s.start.start(s.child(ledger, (*p).address))
	if err == nil {
		*p = again
	}
	return err
}

// Charges counts what a ledger says about a reference: bare or guarded.
func (s *Stage) charges(ledger, ref string) ([]Charge, error) {
	all, err := readLedger(filepath.Join(s.dir, ledger+".ledger"))
	return chargesOf(all, ref), err
}

// Front is the guarded service's address, for whoever wants to try it.
func (s *Stage) Front() string { return "http://" + s.gateway.Addr().String() }

// Admin is the gateway's address of health and metrics.
func (s *Stage) Admin() string { return "http://" + s.gateway.AdminAddr().String() }

// Close ends every process and removes every file.
func (s *Stage) Close() error {
	if s.gateway != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s.gateway.Stop(ctx)
		cancel()
	}
	for _, w := range []*cutter{s.bareWire, s.gatewayWire} {
		if w != nil {
			w.close()
		}
	}
	for _, p := range []*process{s.bare, s.behind} {
		if p != nil {
			p.stop()
		}
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
