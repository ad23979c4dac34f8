package crash

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
)

// A process is killed while its claim is queued in the database behind somebody's transaction.
func TestQueuedWaiters(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		store string
		lane  func(*testing.T) lane
	}{{"sqlite", newSQLiteLane}, {byPGX, newPostgresLane(byPGX)}, {byStdlib, newPostgresLane(byStdlib)}, {byPQ, newPostgresLane(byPQ)}} {
		t.Run(one.store, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, one.store, one.lane)
			t.Run("cases", func(t *testing.T) {
				for _, guard := range []string{opAtomic, opProbe, opRerun} {
					t.Run(guard+" [stores/CT25] killed in the queue, then the owner rolls back: the next caller has it", func(t *testing.T) {
						t.Parallel()
						b.queued(t, guard)
					})
				}
			})
			t.Run("[stores/CT46] a run in which nobody was queued is void", func(t *testing.T) {
				b.tally.Least("queued", 3)
				b.tally.Least("runs", 3)
				if err := b.tally.Void(); err != nil {
					t.Error(err)
				}
				if err := b.story.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// queueing is where a claim is about to ask SQLite for the write lock.
const queueing = "queue of the claim"

func (b *bench) queued(t *testing.T, guard string) {
	ctx, end := context.WithTimeout(t.Context(), 2*time.Minute)
	defer end()
	p := <-b.free
	defer func() { b.free <- p }()
	o := order{Guard: guard, Key: "queued " + guard}
	c := p.config()
	c.Doomed, c.Pass = true, queueing
	victim := b.start(t, c)
	ready, err := b.ask(ctx, victim, order{Guard: opHold, Key: "ready " + guard}) // the store is open before it is blocked
	if err != nil || ready.Err != "" {
		t.Fatal(err, ready.Err)
	}
	if b.store == "sqlite" {
		_, err = victim.Await(ctx, queueing) // that of the first order
		must(t, err)
	}
	owner, err := p.block(ctx)
	must(t, err)
	call := b.story.Begin(o.Key)
	go func() {
		o.Content = call.Content
		var a answer
		_ = victim.Ask(ctx, o, &a) // it dies
	}()
	must(t, p.awaitQueue(ctx, victim))
	b.tally.Add("queued", 1)
	must(t, victim.Kill())
	must(t, owner.Rollback())
	a, asked, err := b.retry(ctx, p, order{Guard: guard, Key: o.Key})
	must(t, err)
	if a.Verdict != idempo.VerdictRun || a.Err != "" || asked > 4 { // a lease of one second, where each answer asks for one
		t.Errorf("the next caller, asked %d times: %+v", asked, a)
	}
	b.tally.Add("runs", 1)
	b.effects(ctx, t, p, o)
}

// block begins a transaction that every claim has to wait for.
func (l *sqliteLane) block(ctx context.Context) (*sql.Tx, error) { return l.db.BeginTx(ctx, nil) }

// awaitQueue: the claim is about to ask for the write lock, which somebody has.
func (l *sqliteLane) awaitQueue(ctx context.Context, p *crashtest.Process) error {
	_, err := p.Await(ctx, queueing)
	return err
}

func (l *pgLane) block(ctx context.Context) (*sql.Tx, error) {
	db, err := sql.Open("pgx", l.dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(0)
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		_, err = tx.ExecContext(ctx, `lock table "`+l.schema+`".records in access exclusive mode`)
	}
	return tx, err
}

// awaitQueue: the server says that a statement waits for the table.
func (l *pgLane) awaitQueue(ctx context.Context, _ *crashtest.Process) error {
	for n := 0; n == 0; {
		if err := l.pool.QueryRow(ctx, `select count(*) from pg_locks where not granted and relation = ('"'||$1||'".records')::regclass`, l.schema).Scan(&n); err != nil {
			return err
		}
	}
	return nil
}
