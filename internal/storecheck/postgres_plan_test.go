package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/postgres"
)

// tapped is a Port that remembers what it was asked last.
type tapped struct {
	postgres.Port
	mu   sync.Mutex
	last []postgres.Statement
}

func (p *tapped) Run(ctx context.Context, tx postgres.PortTx, statements ...postgres.Statement) error {
	p.mu.Lock()
	p.last = append(p.last, statements...)
	p.mu.Unlock()
	return p.Port.Run(ctx, tx, statements...)
}

// touched says how many rows the statements since the last call had to look at, and their plans.
func (p *tapped) touched(t *testing.T, db *sql.DB) (rows int, plans string) {
	t.Helper()
	number := regexp.MustCompile(`(?:actual rows=|Rows Removed by [A-Za-z ]+: |Heap Fetches: )(\d+)`)
	var b strings.Builder
	for _, st := range p.last {
		lines, err := db.QueryContext(t.Context(), "explain (analyze, costs off, timing off, summary off) "+st.SQL, st.Args...)
		must(t, err)
		for lines.Next() {
			var line string
			must(t, lines.Scan(&line))
			b.WriteString(line + "\n")
		}
		must(t, lines.Close())
	}
	p.last = nil
	for _, m := range number.FindAllStringSubmatch(b.String(), -1) {
		n, err := strconv.Atoi(m[1])
		must(t, err)
		rows += n
	}
	return rows, b.String()
}

func TestPostgresOperatorPlans(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	t.Run("[stores/T11] [operations/OP18] [operations/UI10] lists of running and doubtful keys, and their numbers, do not read the rest", func(t *testing.T) {
		t.Parallel()
		db := openDB(t, "pgx", dsn)
		o := migrated(t, dsn, postgres.Options{})
		tap := &tapped{Port: postgres.NewPort(db)}
		s, err := postgres.Over(t.Context(), tap, o)
		must(t, err)
		const done = 60_000
		_, err = db.ExecContext(t.Context(), fmt.Sprintf(`
insert into "%[1]s".records (tenant_id, operation, idempotency_key, state, guard, on_crash, attempt, created_at, changed_at, claimed_at, started_at, lease_until,
    completed_at, expires_at, gone_at, watch_at)
select 'a', 'op', sha256(i::text::bytea), case when i %% 3 = 0 then 'expired' else 'completed' end, 'leased', 'hold', 1, now() - interval '2 hours', now() - interval '1 hour',
    now() - interval '2 hours', now() - interval '2 hours', now() - interval '1 hour', now() - interval '1 hour', now() + interval '1 day', now() + interval '10 days',
    case when i %% 3 = 0 then now() + interval '10 days' end
from generate_series(1, %[2]d) i`, o.Schema, done))
		must(t, err)
		_, err = db.ExecContext(t.Context(), fmt.Sprintf(`vacuum analyze "%s".records`, o.Schema))
		must(t, err)
		for i := range 10 {
			p := leased(fmt.Sprint("running ", i))
			p.Key.Tenant = "b"
			claimed(t, s, p, nil)
			p = leased(fmt.Sprint("due ", i))
			p.Key.Tenant, p.Due = "b", time.Now().Add(100*24*time.Hour)
			claimed(t, s, p, nil)
			p = leased(fmt.Sprint("doubt ", i))
			p.Key.Tenant = "c"
			claimed(t, s, p, nil)
			_, err := s.Release(t.Context(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateInDoubt})
			must(t, err)
		}
		_, err = db.ExecContext(t.Context(), fmt.Sprintf(`update "%s".meta set watched_to = now() - interval '1 hour'`, o.Schema))
		must(t, err)
		tap.last = nil
		want := func(n int, got int, err error) {
			t.Helper()
			must(t, err)
			if got != n {
				t.Errorf("%d keys, want %d", got, n)
			}
			if rows, plan := tap.touched(t, db); rows > 3000 {
				t.Errorf("%d rows are looked at:\n%s", rows, plan)
			}
		}
		list := func(p operator.FindParams) (int, error) {
			page, err := s.List(t.Context(), p)
			return len(page.Records), err
		}
		n, err := list(operator.FindParams{State: idempo.StatePending})
		want(20, n, err)
		n, err = list(operator.FindParams{State: idempo.StateInDoubt})
		want(10, n, err)
		n, err = list(operator.FindParams{State: idempo.StatePending, Tenant: "b", Limit: 5})
		want(5, n, err)
		n, err = list(operator.FindParams{Tenant: "b"})
		want(20, n, err)
		n, err = list(operator.FindParams{Ref: leased("doubt 3").Key.Ref()})
		want(1, n, err)
		stats, err := s.Count(t.Context(), operator.CountParams{})
		must(t, err)
		if c := stats.Of(idempo.StateCompleted); !c.Estimate || c.Records < done/2 || c.Records > done {
			t.Errorf("%+v of %d", c, done*2/3)
		}
		if stats.Of(idempo.StatePending) != (operator.Count{State: idempo.StatePending, Records: 20}) || stats.Of(idempo.StateInDoubt) != (operator.Count{State: idempo.StateInDoubt, Records: 10}) {
			t.Errorf("%+v", stats.Counts)
		}
	})
}

// cutOff is a Port whose statements were sent and never answered.
type cutOff struct{ postgres.Port }

func (cutOff) Run(context.Context, postgres.PortTx, ...postgres.Statement) error {
	return &postgres.PortError{Sent: true, Err: io.ErrUnexpectedEOF}
}

func TestPostgresReadsThatFail(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT23] what only reads has done nothing, whatever went wrong", func(t *testing.T) {
		t.Parallel()
		db := openDB(t, "pgx", postgresDSN(t))
		tap := &tapped{Port: postgres.NewPort(db)}
		s, err := postgres.Over(t.Context(), tap, migrated(t, postgresDSN(t), postgres.Options{}))
		must(t, err)
		tap.Port = cutOff{tap.Port}
		_, list := s.List(t.Context(), operator.FindParams{})
		_, audit := s.Audit(t.Context(), operator.AuditParams{})
		_, count := s.Count(t.Context(), operator.CountParams{})
		_, scan := s.Scan(t.Context(), operator.ScanParams{})
		_, attempts := s.Attempts(t.Context(), leased("x").Key)
		_, holder := s.Holder(t.Context(), leased("x").Key)
		for what, err := range map[string]error{"list": list, "audit": audit, "count": count, "scan": scan, "attempts": attempts, "holder": holder} {
			if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Op != what || !errors.Is(err, idempo.ErrUnavailable) || e.Unknown {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
