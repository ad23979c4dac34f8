package webhookcheck

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx
	_ "modernc.org/sqlite"             // driver sqlite

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
	"github.com/idempo/idempo/webhook"
)

// serviceEnv holds the config of a receiver; the test binary that finds it is one, instead of a test.
const serviceEnv = "IDEMPO_WEBHOOK_SERVICE"

// config tells a receiver where its store is and where it is to die.
type config struct {
	Store, Place, Schema string // sqlite and a file; pgx, a DSN and a schema
	Halt                 string
}

// delivery is what the test, playing the provider, sends; or what it wants done besides.
type delivery struct {
	ID, Body string
	Times    int  // at once
	Once     bool // run what is due instead
}

// reply is what came of it.
type reply struct {
	Statuses []int
	Ran      int
	Parked   []string
	Starts   int // of what waits for a person
	Err      string
}

func TestMain(m *testing.M) {
	text, child := os.LookupEnv(serviceEnv)
	if !child {
		flag.Parse()
		os.Exit(m.Run())
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

// source is GitHub, the plainest of all providers.
func source() webhook.Source {
	return webhook.Source{Name: "gh", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("1", "a secret that only these tests use")},
		Retry: webhook.Retry{Attempts: attempts, First: 1, Max: 1}}
}

const attempts = 3

// receiver is a program of a user of idempo.
type receiver struct {
	stage  *crashtest.Stage
	rcv    *webhook.Receiver
	effect func(ctx context.Context, id string) error
}

func serve(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	s := &receiver{stage: crashtest.NewStage(c.Halt, "", os.Stdout)}
	store, err := s.open(context.Background(), c)
	if err != nil {
		return err
	}
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "test", Value: []byte("a secret that only these tests use")}},
		AcquireTimeout: 20 * time.Second, CompleteBudget: 20 * time.Second})
	if err != nil {
		return err
	}
	s.rcv, err = webhook.New(webhook.Config{Engine: engine, Sources: []webhook.Source{source()}, AnswerBudget: 20 * time.Second, Observer: s, Lease: 200 * time.Millisecond,
		Now: func() time.Time { s.stage.At("received", nil); return time.Now() }})
	if err != nil {
		return err
	}
	s.rcv.Handle("gh", "*", func(ctx context.Context, ev *webhook.Event) error { return s.effect(ctx, ev.IDs[0].Text) })
	s.stage.Serve(os.Stdin, func(what json.RawMessage) any {
		var d delivery
		if err := json.Unmarshal(what, &d); err != nil {
			return reply{Err: err.Error()}
		}
		if d.Once {
			return s.once()
		}
		return s.take(d)
	})
	return nil
}

// Observe is called once the answer has left.
func (s *receiver) Observe(context.Context, webhook.Observation) { s.stage.At("answered", nil) }

// steps announces what a transaction does.
type steps struct{ stage *crashtest.Stage }

func (s steps) complete(call func() (idempo.Record, error)) (idempo.Record, error) {
	s.stage.At("before the result", nil)
	r, err := call()
	s.stage.At("after the result", nil)
	return r, err
}

func (s steps) inTx(call func() error) error {
	err := call()
	if err == nil {
		s.stage.At("committed", nil)
	}
	return err
}

type onSQLite struct {
	*sqlite.Store
	steps
}

func (o onSQLite) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	return o.complete(func() (idempo.Record, error) { return o.Store.Complete(ctx, p) })
}

func (o onSQLite) InTx(ctx context.Context, fn func(context.Context) error) error {
	return o.inTx(func() error { return o.Store.InTx(ctx, fn) })
}

type onPgx struct {
	*postgres.Store
	steps
}

func (o onPgx) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	return o.complete(func() (idempo.Record, error) { return o.Store.Complete(ctx, p) })
}

func (o onPgx) InTx(ctx context.Context, fn func(context.Context) error) error {
	return o.inTx(func() error { return o.Store.InTx(ctx, fn) })
}

func (s *receiver) open(ctx context.Context, c config) (idempo.Store, error) {
	if c.Store == "sqlite" {
		store, err := sqlite.Open(ctx, "sqlite", c.Place, sqlite.Options{BusyTimeout: 20 * time.Second})
		s.effect = func(ctx context.Context, id string) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, `insert into effects (what) values ($1)`, id)
			return err
		}
		return onSQLite{store, steps{s.stage}}, err
	}
	db, err := sql.Open("pgx", c.Place)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(6)
	s.effect = func(ctx context.Context, id string) error {
		_, err := postgres.Tx(ctx).ExecContext(ctx, `insert into "`+c.Schema+`".effects (what) values ($1)`, id)
		return err
	}
	store, err := postgres.New(ctx, db, postgres.Options{Schema: c.Schema})
	return onPgx{store, steps{s.stage}}, err
}

// take signs a delivery as the provider would and serves it, d.Times at once.
func (s *receiver) take(d delivery) (r reply) {
	out, err := webhook.Sign(source(), webhook.SignParams{Body: []byte(d.Body), ID: d.ID, Type: "push", At: time.Now()})
	if err != nil {
		return reply{Err: err.Error()}
	}
	r.Statuses = make([]int, max(d.Times, 1))
	var group sync.WaitGroup
	for i := range r.Statuses {
		group.Go(func() {
			req := httptest.NewRequest(http.MethodPost, "/hooks/gh", bytes.NewReader(out.Body))
			req.Header = out.Header.Clone()
			w := httptest.NewRecorder()
			s.rcv.ServeHTTP(w, req)
			r.Statuses[i] = w.Code
		})
	}
	group.Wait()
	return r
}

// once runs until nothing is stored any more, as Receiver.Run does.
func (s *receiver) once() (r reply) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	in := s.rcv.Inbox("gh")
	go func() { done <- in.Work(ctx, s.run) }()
	for {
		waiting, err := in.Find(ctx, inbox.Selection{Statuses: []inbox.Status{inbox.StatusStored, inbox.StatusRetrying}, Limit: 1})
		if err != nil {
			return reply{Err: err.Error()}
		}
		if len(waiting) == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond) // another process may have it
	}
	cancel()
	if err := <-done; err != nil {
		return reply{Err: err.Error()}
	}
	parked, err := in.Find(context.Background(), inbox.Selection{})
	if err != nil {
		return reply{Err: err.Error()}
	}
	for _, p := range parked {
		r.Parked = append(r.Parked, p.Reason)
		r.Starts += p.Attempts
	}
	return r
}

// run is what the receiver's own worker does with an event of this source.
func (s *receiver) run(ctx context.Context, m inbox.Message) error {
	id, _ := m.Header("webhook-delivery-id")
	_, text, _ := bytes.Cut([]byte(id), []byte(" "))
	s.stage.At("handler", nil)
	if string(text) == "killer" {
		s.stage.At("killer", nil)
	}
	if err := s.effect(ctx, string(text)); err != nil {
		return err
	}
	s.stage.At("effected", nil)
	return nil
}
