package storecheck

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

// movingEndpoint is where clients reach whichever server is the primary, as a virtual address or a proxy of Patroni would lead them.
type movingEndpoint struct {
	l  net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	to    string
	conns map[net.Conn]bool
}

// newEndpoint returns an endpoint that leads to s, and its DSN.
func newEndpoint(t testing.TB, s *pgserver.Server) (*movingEndpoint, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e := &movingEndpoint{l: l, conns: map[net.Conn]bool{}}
	e.move(s)
	e.wg.Go(e.serve)
	t.Cleanup(func() {
		_ = l.Close()
		e.move(nil)
		e.wg.Wait()
	})
	return e, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", l.Addr())
}

// move leads new connections to s, nowhere if nil, and cuts those that are open.
func (e *movingEndpoint) move(s *pgserver.Server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.to = ""
	if s != nil {
		e.to = s.Addr()
	}
	for c := range e.conns {
		_ = c.Close()
	}
}

func (e *movingEndpoint) serve() {
	for {
		c, err := e.l.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		to := e.to
		e.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if to == "" || err != nil {
			_ = c.Close()
			continue
		}
		e.mu.Lock()
		if e.to != to {
			_ = c.Close()
		}
		e.conns[c], e.conns[server] = true, true
		e.mu.Unlock()
		for _, pipe := range [][2]net.Conn{{c, server}, {server, c}} {
			e.wg.Go(func() {
				_, _ = io.Copy(pipe[0], pipe[1])
				_, _ = pipe[0].Close(), pipe[1].Close()
				e.mu.Lock()
				defer e.mu.Unlock()
				delete(e.conns, pipe[0])
			})
		}
	}
}

// pgPair is a primary and a copy of it.
type pgPair struct {
	a, b     *pgserver.Server
	endpoint *movingEndpoint
	dsn      string // of the endpoint
	o        postgres.Options
}

// startPair starts a primary with a migrated schema, and a streaming standby that it waits for, or not.
func startPair(t testing.TB, synchronous bool) *pgPair {
	t.Helper()
	p := &pgPair{a: pgserver.Start(t, "wal_keep_size=64MB")}
	p.endpoint, p.dsn = newEndpoint(t, p.a)
	p.o = postgres.Options{}
	db := openDB(t, "pgx", p.a.DSN())
	must(t, postgres.Migrate(t.Context(), db, p.o))
	_, err := db.ExecContext(t.Context(), fmt.Sprintf(pgEffects, "idempo"))
	must(t, err)
	p.o.Schema = "idempo"
	p.b = p.a.Standby(t, "standby")
	if synchronous {
		_, err := db.ExecContext(t.Context(), `alter system set synchronous_standby_names = '*'`)
		must(t, err)
		_, err = db.ExecContext(t.Context(), `select pg_reload_conf()`)
		must(t, err)
	}
	want := map[bool]string{true: "sync", false: "async"}[synchronous]
	look := &pg{db: db}
	for look.count(t, `select count(*) from pg_stat_replication where state = 'streaming' and sync_state = $1`, want) == 0 {
		if pauseTest(t) {
			t.Fatal("the standby does not stream")
		}
	}
	return p
}

// fail ends the primary and makes the standby the new one.
func (p *pgPair) fail(t testing.TB) {
	t.Helper()
	p.a.Kill(t)
	p.b.Promote(t)
	p.endpoint.move(p.b)
}

// lag stops the stream to the standby: what is committed from now on is lost with the primary.
func (p *pgPair) lag(t testing.TB) {
	t.Helper()
	db := openDB(t, "pgx", p.b.DSN())
	_, err := db.ExecContext(t.Context(), `alter system set primary_conninfo = ''`)
	must(t, err)
	_, err = db.ExecContext(t.Context(), `select pg_reload_conf()`)
	must(t, err)
	look := &pg{db: openDB(t, "pgx", p.a.DSN())}
	for look.count(t, `select count(*) from pg_stat_replication`) > 0 {
		if pauseTest(t) {
			t.Fatal("the standby goes on streaming")
		}
	}
}

// caughtUp waits until the standby has applied what the primary has committed.
func (p *pgPair) caughtUp(t testing.TB) {
	t.Helper()
	look := &pg{db: openDB(t, "pgx", p.a.DSN())}
	for look.count(t, `select count(*) from pg_stat_replication where replay_lsn >= pg_current_wal_insert_lsn()`) == 0 {
		if pauseTest(t) {
			t.Fatal("the standby does not catch up")
		}
	}
}
