package crash

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
)

// serviceEnv holds the config of a service; the test binary that finds it is one, instead of a test.
const serviceEnv = "IDEMPO_CRASH_SERVICE"

// lease is what a service has that is to die: the shortest that is legal, so that retries need not wait long. The service
// that survives has the default, so that it is not lost on a busy machine.
const lease = time.Second

// config tells a service where its world is and where it is to die.
type config struct {
	Store  string // sqlite, mysql, idempgx, pgx, pq
	Place  string // file, or DSN
	Schema string // on PostgreSQL
	Ledger string
	Halt   string // see crashtest.Stage
	Pass   string
	TxIdle time.Duration // on PostgreSQL and MySQL: how long the server lets a transaction say nothing
	Doomed bool          // it will be killed, or stopped for long
}

// order is a job of the service: do an intent once.
type order struct {
	Guard string // the operation's name
	Key   string
	Wait  time.Duration
	// Content is what the work answers; see history.Call.
	Content string
	// Pause has the work ask the far side for pausing(Key) after its effect, where the test keeps it waiting.
	Pause bool
	// Stopped has a work that paused wait for the end of its context, and answer all the same.
	Stopped bool
}

// pausing is the intent that a work asks for which is to wait.
func pausing(key string) string { return "pause " + key }

// answer is what the service's caller hears.
type answer struct {
	Verdict    idempo.Verdict
	Code       string // of the error
	Err        string
	Body       string
	Attempt    int64
	RetryAfter time.Duration
	Lost       bool // the lease ended while the work went on
	Open       bool // the error admits that an effect may have happened
	Ended      bool // the context of a stopped work has ended, because its lease was lost
	Fenced     int  // late writes of this process that were refused, so far
}

func TestMain(m *testing.M) {
	text, child := os.LookupEnv(serviceEnv)
	if !child {
		flag.Parse()
		if err := flag.Set("test.parallel", "16"); err != nil { // steps wait for leases most of the time; lanes bound the work
			panic(err)
		}
		code := m.Run()
		if err := printTable(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// service is a program of a user of idempo: operations, a store, an engine.
type service struct {
	stage  *crashtest.Stage
	engine *idempo.Engine
	ledger *crashtest.LedgerClient
	world  world
	doomed bool
	fenced atomic.Int64
	ended  atomic.Bool
}

// Observe counts late writes that were refused.
func (s *service) Observe(_ context.Context, e idempo.Event) {
	if e.Kind == "fenced" {
		s.fenced.Add(1)
	}
}

func serve(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	s := &service{
		doomed: c.Doomed,
		stage:  crashtest.NewStage(c.Halt, c.Pass, os.Stdout),
		ledger: &crashtest.LedgerClient{URL: c.Ledger, Client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}},
	}
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	store := &stepped{stage: s.stage, doomed: c.Doomed}
	var err error
	if s.world, err = open(ctx, c, store); err != nil {
		return err
	}
	store.inner = s.world.store
	s.engine, err = idempo.New(store, idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "test", Value: []byte("a secret that only these tests use")}},
		Operations: s.operations(),
		Observer:   s,
		// Patience beyond that of a busy machine: what is under test is what becomes of a crash, not how long it takes.
		AcquireTimeout: 20 * time.Second,
		CompleteBudget: 20 * time.Second,
	})
	if err != nil {
		return err
	}
	go s.drain()
	s.stage.Serve(os.Stdin, func(what json.RawMessage) any {
		var o order
		if err := json.Unmarshal(what, &o); err != nil {
			return answer{Err: err.Error()}
		}
		return s.do(context.Background(), o)
	})
	return nil
}

// drain waits for SIGTERM and then ends the process as a program should: new work is refused, what runs is finished.
func (s *service) drain() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
	left := s.engine.Drain(context.Background()) // the grace is whoever sent the signal's: SIGKILL ends it
	s.stage.Wait()
	os.Exit(left)
}

// The operations, by their guard and what follows a crash. The unguarded two do the same work without a claim.
const (
	opAtomic   = "atomic"
	opHold     = "leased-hold"
	opStart    = "leased-hold-start-mark"
	opProbe    = "leased-probe"
	opRerun    = "leased-rerun"
	opBareRow  = "unguarded-row"
	opBareCall = "unguarded-call"
)

func (s *service) operations() []idempo.Operation {
	lease := lease
	if !s.doomed {
		lease = 0
	}
	return []idempo.Operation{
		{Name: opAtomic, Guard: idempo.GuardAtomic},
		{Name: opHold, Guard: idempo.GuardLeased, Lease: lease},
		{Name: opStart, Guard: idempo.GuardLeased, Lease: lease, StartMark: true},
		{Name: opProbe, Guard: idempo.GuardLeased, Lease: lease, OnCrash: idempo.OnCrashProbe, ProbeFunc: s.probe},
		{Name: opRerun, Guard: idempo.GuardLeased, Lease: lease, OnCrash: idempo.OnCrashRerun, DownstreamHonoursKey: true},
	}
}

// do is one request of a caller.
func (s *service) do(ctx context.Context, o order) answer {
	ctx, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	if o.Guard == opBareRow || o.Guard == opBareCall {
		return s.unguarded(ctx, o)
	}
	req := idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: o.Guard, ID: o.Key}, Input: [][]byte{[]byte("pay " + o.Key)}, Snapshot: []byte(o.Key), Trace: o.Key, Wait: o.Wait}
	b, err := s.engine.Do(ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) { return s.work(ctx, o, c) })
	a := answer{Verdict: b.Verdict, Body: string(b.Record.Result.Body), Attempt: b.Record.Attempt, RetryAfter: b.RetryAfter, Fenced: int(s.fenced.Load()), Ended: s.ended.Load()}
	if err != nil {
		a.Err, a.Body, a.Lost, a.Open = err.Error(), "", errors.Is(err, idempo.ErrLeaseLost), idempo.MayHaveHappened(err)
		if e, ok := errors.AsType[*idempo.Error](err); ok {
			a.Code = e.Code
		}
	}
	s.stage.At("done", a)
	return a
}

// work is what must happen once: a row beside the record, or a call of the far side.
func (s *service) work(ctx context.Context, o order, c *idempo.Claim) (idempo.Result, error) {
	s.stage.At("work", nil)
	if err := c.Start(ctx); err != nil {
		return idempo.Result{}, err
	}
	content := s.content(o)
	switch o.Guard {
	case opAtomic:
		if err := s.world.insert(ctx, o.Key, content); err != nil {
			return idempo.Result{}, err
		}
	default:
		key := ""
		if o.Guard == opRerun {
			key = c.Derive("")
		}
		var err error
		if content, err = s.ledger.Do(ctx, o.Key, key, content); err != nil {
			return idempo.Result{}, errors.Join(err, context.Cause(ctx))
		}
	}
	s.stage.At("worked", nil)
	if o.Pause {
		// As work that does not look at its context: it answers whatever became of its lease meanwhile.
		if _, _, err := s.ledger.Find(context.WithoutCancel(ctx), pausing(o.Key)); err != nil {
			return idempo.Result{}, err
		}
		if o.Stopped {
			<-ctx.Done()
			s.ended.Store(errors.Is(context.Cause(ctx), idempo.ErrLeaseLost))
		}
	}
	return idempo.Result{Status: 201, Header: [][2]string{{"Location", "/" + content}}, Body: []byte(content)}, nil
}

// probe asks the far side what became of an intent.
func (s *service) probe(ctx context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
	content, ok, err := s.ledger.Find(ctx, string(r.Snapshot))
	switch {
	case err != nil:
		return "", idempo.Result{}, err
	case !ok:
		return idempo.StateFailed, idempo.Result{}, nil
	}
	return idempo.StateCompleted, idempo.Result{Status: 201, Body: []byte(content)}, nil
}

// unguarded is work without a claim.
func (s *service) unguarded(ctx context.Context, o order) answer {
	content, err := s.content(o), error(nil)
	if o.Guard == opBareRow {
		err = s.world.bare(ctx, o.Key, content)
	} else {
		content, err = s.ledger.Do(ctx, o.Key, "", content)
	}
	if err != nil {
		return answer{Err: err.Error()}
	}
	s.stage.At("worked", nil)
	a := answer{Verdict: idempo.VerdictRun, Body: content}
	s.stage.At("done", a)
	return a
}

// content tells one effect from another.
func (s *service) content(o order) string {
	if o.Content != "" {
		return o.Content
	}
	return fmt.Sprintf("%s|%d-%d", o.Key, os.Getpid(), time.Now().UnixNano())
}
