package crash

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/internal/storecheck/history"
)

// lane is one database, in which one service at a time is killed.
type lane interface {
	config() config
	plan(step, guard string, i int) plan
	// wire leads c through a proxy with a trap; nil: the database has no wire.
	wire(t *testing.T, c *config, trap crashtest.Trap) *crashtest.Wire
	// rows returns the effects of a key as a connection beside the services sees them.
	rows(ctx context.Context, key string) ([]string, error)
	// record returns the row of a key, whatever is in it, as text.
	record(ctx context.Context, key string) (string, error)
	// block begins a transaction that every claim has to wait for.
	block(ctx context.Context) (*sql.Tx, error)
	// awaitQueue returns when the claim of a service waits in the database.
	awaitQueue(ctx context.Context, p *crashtest.Process) error
	// sound is "ok" if the database finds nothing wrong with itself.
	sound(ctx context.Context) (string, error)
}

// lanes is how many services are brought to their deaths at once, for each store.
const lanes = 3

// open opens the store of c in a service.
func open(ctx context.Context, c config, steps *stepped) (world, error) {
	switch c.Store {
	case "sqlite":
		return openSQLite(ctx, c, steps)
	case byMySQL:
		return openMySQL(ctx, c, steps)
	case byPGX, byStdlib, byPQ:
		return openPostgres(ctx, c)
	}
	return world{}, fmt.Errorf("no store %q", c.Store)
}

// kills is how often a service is killed at each step: KILLS, or a few.
func kills(t *testing.T) int {
	t.Helper()
	text, ok := os.LookupEnv("KILLS")
	if !ok {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KILLS=%q is no number of kills", text)
	}
	return n
}

// bench is where the services of one store are killed.
type bench struct {
	store  string
	exe    string
	ledger *crashtest.Ledger
	free   chan *place
	places []*place
	tally  crashtest.Tally
	story  history.History

	mu   sync.Mutex
	rows []*crashtest.Row
}

// place is a lane with the service that survives on it.
type place struct {
	lane
	survivor *crashtest.Process
}

func newBench(t *testing.T, store string, newLane func(*testing.T) lane) *bench {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{store: store, exe: exe, free: make(chan *place, lanes)}
	if b.ledger, err = crashtest.OpenLedger(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.ledger.Close() })
	for range lanes {
		p := &place{lane: newLane(t)}
		p.survivor = b.start(t, p.config())
		t.Cleanup(func() {
			if err := p.survivor.Stop(); err != nil {
				t.Error(err)
			}
		})
		b.places = append(b.places, p)
		b.free <- p
	}
	return b
}

func (b *bench) start(t *testing.T, c config) *crashtest.Process {
	t.Helper()
	c.Ledger = b.ledger.URL()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := crashtest.Start(b.exe, serviceEnv+"="+string(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// errTooSlow: the machine was so busy that a service lost its lease of a second before it came to its point.
var errTooSlow = errors.New("the service lost its lease on the way")

// kill brings a service to a step of the order and kills it there. It returns what the service would have answered, if
// it had an answer.
func (b *bench) kill(ctx context.Context, t *testing.T, l lane, p plan, o order) (said *answer, err error) {
	o.Content = b.story.Begin(o.Key).Content // never answered: it may have taken effect, or not
	c := l.config()
	c.Halt, c.Pass, c.Doomed = p.halt, p.pass, true
	var wire *crashtest.Wire
	if p.trap.Match != nil {
		wire = l.wire(t, &c, p.trap)
	}
	ctx, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	victim := b.start(t, c)
	early := make(chan error, 1)
	go func() {
		var a answer
		switch err := victim.Ask(ctx, o, &a); {
		case err != nil: // it is dead
		case a.Lost:
			early <- errTooSlow
		default:
			early <- fmt.Errorf("the service answered and never came there: %+v", a)
		}
	}()
	var at crashtest.Event
	switch {
	case wire != nil:
		select {
		case <-wire.Sprung():
		case err = <-early:
		case <-ctx.Done():
			err = fmt.Errorf("the trap never sprang")
		}
	case p.pass != "":
		at, err = victim.Await(ctx, p.pass)
		for until := time.Now().Add(rand.N(1500 * time.Microsecond)); err == nil && time.Now().Before(until); {
		}
	default:
		arrived := make(chan struct{})
		go func() {
			defer close(arrived)
			at, err = victim.Await(ctx, p.halt)
		}()
		select {
		case <-arrived:
		case why := <-early:
			end()
			<-arrived
			err = why
		}
	}
	if killed := victim.Kill(); err == nil {
		err = killed
	}
	if wire != nil {
		if closed := wire.Close(); err == nil {
			err = closed
		}
	}
	if err == nil && p.halt == "done" {
		said = &answer{}
		err = json.Unmarshal(at.Say, said)
	}
	return said, err
}

// ask has a service do an order and notes in the history what it was told.
func (b *bench) ask(ctx context.Context, p *crashtest.Process, o order) (a answer, err error) {
	c := b.story.Begin(o.Key)
	o.Content = c.Content
	if err := p.Ask(ctx, o, &a); err != nil {
		return a, err
	}
	switch {
	case a.Verdict == idempo.VerdictInProgress || a.Verdict == idempo.VerdictInDoubt:
		c.Wait()
	case a.Err != "" && a.Open:
		c.Open()
	case a.Err != "":
		c.Refused()
	case a.Verdict == idempo.VerdictRun:
		c.Run(a.Body, a.Attempt)
	default:
		c.Replay(a.Body)
	}
	return a, nil
}

// retry repeats an order at the survivor until the answer is final, at the pace the answers ask for. asked counts.
func (b *bench) retry(ctx context.Context, p *place, o order) (a answer, asked int, err error) {
	for asked = 1; ; asked++ {
		if a, err = b.ask(ctx, p.survivor, o); err != nil {
			return a, asked, err
		}
		if a.Verdict != idempo.VerdictInProgress {
			return a, asked, nil
		}
		pause := time.NewTimer(a.RetryAfter)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return a, asked, fmt.Errorf("in progress for ever")
		}
	}
}

// step kills n services at a step of an operation, one key each, and holds what is left against the table.
func (b *bench) step(t *testing.T, s step, guard string, n int) {
	t.Helper()
	row := &crashtest.Row{Store: b.store, Guard: guard, Step: s.id, Name: s.name[len("[stores/CT1] "):]}
	b.mu.Lock()
	b.rows = append(b.rows, row)
	b.mu.Unlock()
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		p := <-b.free
		pl := p.plan(s.id, guard, i)
		o := order{Guard: guard, Key: fmt.Sprintf("%s %s %d", s.id, guard, i)}
		said, err := b.kill(ctx, t, p, pl, o)
		for try := 1; errors.Is(err, errTooSlow) && try < 5; try++ { // no kill: another key
			o.Key = fmt.Sprintf("%s %s %d again %d", s.id, guard, i, try)
			said, err = b.kill(ctx, t, p, pl, o)
		}
		b.free <- p
		if err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		mu.Lock()
		row.Kills++
		mu.Unlock()
		b.tally.Add("kills", 1)
		wg.Go(func() {
			e, err := b.after(ctx, p, pl, s.id, o, said)
			if err != nil {
				t.Errorf("kill %d %s: %v", i, pl.mode, err)
				return
			}
			row.Effects.Add(strconv.Itoa(e.effects), 1)
			row.Verdicts.Add(string(e.verdict), 1)
		})
	}
	wg.Wait()
	b.tally.Least("kills", n)
	if row.Kills != n {
		t.Errorf("void run: %d kills of %d", row.Kills, n)
	}
}

// after retries the order of a dead service and judges what came of it.
func (b *bench) after(ctx context.Context, p *place, pl plan, step string, o order, said *answer) (outcome, error) {
	if o.Guard == opAtomic {
		o.Wait = time.Second // a duplicate owns the key within a second
	}
	a, asked, err := b.retry(ctx, p, o)
	if err != nil {
		return outcome{}, err
	}
	got := outcome{verdict: a.Verdict}
	effects, calls := b.ledger.Effects(o.Key), b.ledger.Calls(o.Key)
	if o.Guard == opAtomic {
		if effects, err = p.rows(ctx, o.Key); err != nil {
			return got, err
		}
		calls = effects
	}
	got.effects, got.calls = len(effects), len(calls)
	want := outcomes(step, o.Guard, pl.mode)
	mostly := 3 // "in progress" for a lease of one second, where each answer asks for one; clocks of two processes differ a little
	if o.Guard == opAtomic {
		mostly = 1
	}
	switch final := a.Verdict == idempo.VerdictRun || a.Verdict == idempo.VerdictReplay; {
	case !slices.Contains(want, got):
		return got, fmt.Errorf("verdict %s, %d effects, %d calls; want one of %v; error %q", got.verdict, got.effects, got.calls, want, a.Err)
	case asked > mostly:
		return got, fmt.Errorf("asked %d times until the answer was final", asked)
	case final && (a.Err != "" || a.Body != effects[0]):
		return got, fmt.Errorf("the answer %q is not that of the effect %q; error %q", a.Body, effects[0], a.Err)
	case said != nil && said.Body != a.Body:
		return got, fmt.Errorf("the replay is %q, the first answer was %q", a.Body, said.Body)
	case o.Guard == opRerun && len(slices.Compact(slices.Clone(calls))) > 1:
		return got, fmt.Errorf("the far side was called with different keys")
	}
	b.count(a, pl)
	again, _, err := b.retry(ctx, p, o)
	if err != nil {
		return got, err
	}
	stays := a.Verdict
	if stays == idempo.VerdictRun {
		stays = idempo.VerdictReplay
	}
	if again.Verdict != stays || again.Body != a.Body {
		return got, fmt.Errorf("asked once more: %s %q after %s %q", again.Verdict, again.Body, a.Verdict, a.Body)
	}
	if again.Verdict == idempo.VerdictReplay {
		b.tally.Add("replays", 1)
	}
	return got, nil
}

// count notes what an answer says about the run as a whole.
func (b *bench) count(a answer, pl plan) {
	if a.Err == "" {
		b.tally.Add("successes", 1)
	}
	if pl.mode != "" {
		b.tally.Add("open commits settled", 1)
	}
	if a.Attempt > 1 {
		b.tally.Add("take-overs", 1)
	}
}

// matrix runs every step for every guard and then calls the run void if it did less than it claims.
func (b *bench) matrix(t *testing.T, n int) {
	guards := []string{opAtomic, opHold, opProbe, opRerun}
	t.Run("steps", func(t *testing.T) {
		for _, guard := range guards {
			for _, s := range steps() {
				t.Run(guard+" "+s.name, func(t *testing.T) {
					t.Parallel() // [stores/CT42] 7 steps, every store, every guard and policy
					b.step(t, s, guard, n)
				})
			}
		}
		t.Run("leased, not started [stores/CT3] after the claim, before the effect", func(t *testing.T) {
			t.Parallel()
			b.step(t, steps()[2], opStart, n)
		})
	})
	t.Run("[stores/CT46] a run that did too little is void", func(t *testing.T) {
		for kind, per := range map[string]float64{"successes": 15, "open commits settled": 3, "take-overs": 3, "replays": 15} {
			b.tally.Least(kind, int(per*float64(n)))
		}
		if err := b.tally.Void(); err != nil {
			t.Errorf("%v (%s)", err, &b.tally)
		}
		t.Log(&b.tally)
	})
	t.Run("[stores/CT44] one order of events explains every answer", func(t *testing.T) {
		if err := b.story.Check(); err != nil {
			t.Error(err)
		}
		t.Log(b.story.Counts())
	})
	t.Run("every database is sound after the kills", func(t *testing.T) {
		for _, p := range b.places {
			if word, err := p.sound(t.Context()); err != nil || word != "ok" {
				t.Error(word, err)
			}
		}
	})
	tables.add(b.rows)
}

// control does the same without a guard. Where no second effect is seen then, the counters do not count.
func (b *bench) control(t *testing.T, n int) {
	for _, guard := range []string{opBareRow, opBareCall} {
		for _, s := range []step{steps()[3], steps()[6]} {
			t.Run(guard+" after "+s.id, func(t *testing.T) {
				t.Parallel()
				row := &crashtest.Row{Store: b.store, Guard: guard, Step: s.id, Name: "control: the guard removed"}
				for i := range n {
					p := <-b.free
					o := order{Guard: guard, Key: fmt.Sprintf("control %s %s %d", s.id, guard, i)}
					_, err := b.kill(t.Context(), t, p, everywhere(s.id), o)
					b.free <- p
					if err != nil {
						t.Fatal(err)
					}
					var a answer
					if err := p.survivor.Ask(t.Context(), o, &a); err != nil || a.Err != "" {
						t.Fatal(err, a.Err)
					}
					effects := b.ledger.Effects(o.Key)
					if guard == opBareRow {
						if effects, err = p.rows(t.Context(), o.Key); err != nil {
							t.Fatal(err)
						}
					}
					row.Kills++
					row.Effects.Add(strconv.Itoa(len(effects)), 1)
					row.Verdicts.Add("no guard", 1)
					if len(effects) != 2 {
						t.Errorf("void run: %d effects without a guard, want 2", len(effects))
					}
				}
				tables.add([]*crashtest.Row{row})
			})
		}
	}
}

// tables collects what all stores came to, for the end.
var tables table

type table struct {
	mu   sync.Mutex
	rows []*crashtest.Row
}

func (t *table) add(rows []*crashtest.Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, rows...)
}

// printTable writes the table to the file that CRASH_TABLE names.
func printTable() error {
	name := os.Getenv("CRASH_TABLE")
	if name == "" {
		return nil
	}
	f, err := os.Create(filepath.Clean(name))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return crashtest.WriteTable(f, tables.rows)
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	b := newBench(t, "sqlite", newSQLiteLane)
	b.matrix(t, kills(t))
	t.Run("[stores/CT46] without the guard there are two effects", func(t *testing.T) { b.control(t, min(kills(t), 20)) })
}
