package inboxcheck

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx
	_ "modernc.org/sqlite"             // driver sqlite

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// serviceEnv holds the config of a consumer; the test binary that finds it is one, instead of a test.
const serviceEnv = "IDEMPO_INBOX_SERVICE"

// config tells a consumer where its store is and where it is to die.
type config struct {
	Store, Place, Schema string // sqlite and a file; idempgx or pgx, a DSN and a schema; mysql and a DSN
	Ledger               string // of the leased guard's effects
	Halt                 string
	OnCrash              idempo.OnCrash // leased where it is set
	Lease                time.Duration
}

// delivery is what the test, playing the broker, hands to a consumer.
type delivery struct {
	IDs     []string // several are a batch
	Attempt int
	Put     bool // store it for later
	Once    bool // run what is due instead
}

// reply is what the broker hears.
type reply struct {
	Outcomes []inbox.Outcome
	Ran      int
	Err      string
}

func TestMain(m *testing.M) {
	text, child := os.LookupEnv(serviceEnv)
	if !child {
		flag.Parse()
		os.Exit(m.Run())
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

// consumer is a program of a user of idempo.
type consumer struct {
	stage  *crashtest.Stage
	in     *inbox.Inbox
	ledger *crashtest.LedgerClient
	effect func(ctx context.Context, id string) error
	leased bool
}

const maxAttempts = 3

func serve(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	s := &consumer{stage: crashtest.NewStage(c.Halt, "", os.Stdout), leased: c.OnCrash != "",
		ledger: &crashtest.LedgerClient{URL: c.Ledger, Client: http.Client{Transport: &http.Transport{}}}}
	store, err := s.open(context.Background(), c)
	if err != nil {
		return err
	}
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "test", Value: []byte("a secret that only these tests use")}},
		AcquireTimeout: 20 * time.Second, CompleteBudget: 20 * time.Second, Lease: max(c.Lease, time.Second)})
	if err != nil {
		return err
	}
	o := inbox.Options{Subscriber: "billing", MaxAttempts: maxAttempts, BackoffBase: 1, BackoffMax: 1, Lease: c.Lease}
	if s.leased {
		o.Guard, o.OnCrash, o.DownstreamHonoursKey = idempo.GuardLeased, c.OnCrash, c.OnCrash == idempo.OnCrashRerun
		if c.OnCrash == idempo.OnCrashProbe {
			o.ProbeFunc = s.probe
		}
	}
	if s.in, err = inbox.New(engine, o); err != nil {
		return err
	}
	s.stage.Serve(os.Stdin, func(what json.RawMessage) any {
		var d delivery
		if err := json.Unmarshal(what, &d); err != nil {
			return reply{Err: err.Error()}
		}
		return s.deliver(context.Background(), d)
	})
	return nil
}

func (s *consumer) open(ctx context.Context, c config) (idempo.Store, error) {
	const insert = `insert into %s (what) values ($1)`
	switch c.Store {
	case "sqlite":
		store, err := sqlite.Open(ctx, "sqlite", c.Place, sqlite.Options{BusyTimeout: 20 * time.Second})
		s.effect = func(ctx context.Context, id string) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, fmt.Sprintf(insert, "effects"), id)
			return err
		}
		return store, err
	case "mysql":
		db, err := sql.Open("mysql", c.Place)
		if err != nil {
			return nil, err
		}
		s.effect = func(ctx context.Context, id string) error {
			_, err := mysql.Tx(ctx).ExecContext(ctx, "insert into effects (what) values (?)", id)
			return err
		}
		return mysql.New(ctx, db, mysql.Options{})
	case "pgx":
		db, err := sql.Open("pgx", c.Place)
		if err != nil {
			return nil, err
		}
		s.effect = func(ctx context.Context, id string) error {
			_, err := postgres.Tx(ctx).ExecContext(ctx, fmt.Sprintf(insert, `"`+c.Schema+`".effects`), id)
			return err
		}
		return postgres.New(ctx, db, postgres.Options{Schema: c.Schema})
	}
	pool, err := pgxpool.New(ctx, c.Place)
	if err != nil {
		return nil, err
	}
	s.effect = func(ctx context.Context, id string) error {
		_, err := idempgx.Tx(ctx).Exec(ctx, fmt.Sprintf(insert, `"`+c.Schema+`".effects`), id)
		return err
	}
	return idempgx.New(ctx, pool, postgres.Options{Schema: c.Schema})
}

func (s *consumer) message(id string, attempt int) inbox.Message {
	return inbox.Message{Source: "orders", ID: id, Body: []byte("body of " + id), Attempt: attempt}
}

func (s *consumer) deliver(ctx context.Context, d delivery) (r reply) {
	var err error
	switch {
	case d.Once:
		r.Ran, err = s.in.Once(ctx, s.handle)
	case d.Put:
		var out inbox.Outcome
		out, err = s.in.Put(ctx, s.message(d.IDs[0], d.Attempt))
		r.Outcomes = []inbox.Outcome{out}
	case len(d.IDs) > 1:
		var ms []inbox.Message
		for _, id := range d.IDs {
			ms = append(ms, s.message(id, d.Attempt))
		}
		r.Outcomes, err = s.in.HandleBatch(ctx, ms, s.handle)
	default:
		handle := s.in.Handle
		if s.leased {
			handle = s.in.HandleLeased
		}
		var out inbox.Outcome
		out, err = handle(ctx, s.message(d.IDs[0], d.Attempt), s.handle)
		r.Outcomes = []inbox.Outcome{out}
	}
	for i := range r.Outcomes {
		r.Outcomes[i].Err = nil // it has no JSON
	}
	if err != nil {
		r.Err = err.Error()
	}
	s.stage.At("handled", nil)
	return r
}

// handle has the effect. Whatever is named "killer" is where a Halt at "killer" strikes.
func (s *consumer) handle(ctx context.Context, m inbox.Message) error {
	s.stage.At("handler", nil)
	if m.ID == "killer" {
		s.stage.At("killer", nil)
	}
	if s.leased {
		if _, err := s.ledger.Do(ctx, m.ID, idempo.FromContext(ctx).Derive(""), "done"); err != nil {
			return err
		}
	} else if err := s.effect(ctx, m.ID); err != nil {
		return err
	}
	s.stage.At("effected", nil)
	return nil
}

// probe asks the far side. The record names no message, so the tests have one.
func (s *consumer) probe(ctx context.Context, _ idempo.Record) (idempo.State, idempo.Result, error) {
	_, ok, err := s.ledger.Find(ctx, "m")
	if err != nil || !ok {
		return idempo.StateFailed, idempo.Result{}, err
	}
	return idempo.StateCompleted, idempo.Result{}, nil
}
