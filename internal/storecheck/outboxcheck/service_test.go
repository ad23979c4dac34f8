package outboxcheck

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx

	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

// serviceEnv holds the config of a relay; the test binary that finds it is one, instead of a test.
const serviceEnv = "IDEMPO_OUTBOX_SERVICE"

// config tells a relay where its store is and where it is to die.
type config struct {
	DSN, Schema, Owner string
	Halt               string
	After              int // the point is passed so many times first
	Lease              time.Duration
}

func TestMain(m *testing.M) {
	text, child := os.LookupEnv(serviceEnv)
	if !child {
		flag.Parse()
		os.Exit(m.Run())
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func serve(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	db, err := sql.Open("pgx", c.DSN)
	if err != nil {
		return err
	}
	store, err := postgres.New(context.Background(), db, postgres.Options{Schema: c.Schema})
	if err != nil {
		return err
	}
	s := &steps{stage: crashtest.NewStage(c.Halt, "", os.Stdout), halt: c.Halt, left: c.After}
	relay, err := outbox.NewRelay(staged{store, s}, &publisher{db: db, steps: s, schema: c.Schema, owner: c.Owner}, outbox.RelayOptions{
		Owner: c.Owner, Renew: c.Lease / 3, Lease: c.Lease, MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond, MinPoll: time.Millisecond,
		MaxPoll: 20 * time.Millisecond, AckEvery: 5 * time.Millisecond, OnDead: outbox.OnDeadContinue, DrainTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	end := make(chan error, 1)
	go func() { end <- relay.Run(ctx) }()
	s.stage.Serve(os.Stdin, func(json.RawMessage) any { return nil }) // until the input ends: a clean stop
	stop()
	return <-end
}

// steps are the points where a relay may die.
type steps struct {
	stage *crashtest.Stage
	halt  string
	left  int
}

// at says that a step is reached. The point is passed a few times, so that the relay dies in the middle of its work.
func (s *steps) at(point string) {
	if point != s.halt {
		return
	}
	if s.left--; s.left < 0 {
		s.stage.At(point, nil)
	}
}

// staged is the store with steps around its calls.
type staged struct {
	*postgres.Store
	s *steps
}

func (s staged) Outbox() (outbox.Store, outbox.Desk) {
	store, desk := s.Store.Outbox()
	return calls{store, s.s}, desk
}

type calls struct {
	outbox.Store
	s *steps
}

func (c calls) Hold(ctx context.Context, p outbox.HoldParams) (outbox.Held, error) {
	c.s.at("before lease")
	h, err := c.Store.Hold(ctx, p)
	if len(h.Leases) > 0 {
		c.s.at("leased")
	}
	if len(p.Release) > 0 {
		c.s.at("handed over")
	}
	return h, err
}

func (c calls) Read(ctx context.Context, p outbox.ReadParams) (outbox.Page, error) {
	page, err := c.Store.Read(ctx, p)
	if len(page.Rows) > 0 {
		c.s.at("read")
	}
	return page, err
}

func (c calls) Move(ctx context.Context, p outbox.MoveParams) (outbox.Moved, error) {
	if len(p.Asides) > 0 {
		c.s.at("before set aside")
	} else {
		c.s.at("before cursor")
	}
	m, err := c.Store.Move(ctx, p)
	if len(p.Asides) > 0 {
		c.s.at("set aside")
	} else {
		c.s.at("cursor")
	}
	return m, err
}

func (c calls) Take(ctx context.Context, p outbox.TakeParams) (outbox.Taken, error) {
	t, err := c.Store.Take(ctx, p)
	if len(t.Asides) > 0 {
		c.s.at("taken")
	}
	return t, err
}

// publisher writes what it is given to a table that no relay reads.
type publisher struct {
	db            *sql.DB
	steps         *steps
	schema, owner string
}

var errPoison = errors.New("the destination does not like it")

func (p *publisher) Publish(ctx context.Context, params outbox.PublishParams) {
	for i, d := range params.Events {
		p.steps.at("before send")
		if strings.HasPrefix(string(d.Payload), "poison") {
			params.Done(i, errPoison)
			continue
		}
		_, err := p.db.ExecContext(context.WithoutCancel(ctx), `insert into "`+p.schema+`".published (id, key, body, owner) values ($1, $2, $3, $4)`,
			d.ID, d.Key, string(d.Payload), p.owner)
		p.steps.at("sent")
		if err != nil {
			err = outbox.Unanswered(err)
		}
		params.Done(i, err)
		p.steps.at("acknowledged")
	}
}
