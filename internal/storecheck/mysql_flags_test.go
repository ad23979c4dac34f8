package storecheck

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/storetest"
)

// myFlags are what a driver or a session may be set to, each in a way that has misled somebody.
func myFlags() map[string]func(*driver.Config) {
	param := func(name, value string) func(*driver.Config) {
		return func(c *driver.Config) {
			if c.Params == nil {
				c.Params = map[string]string{}
			}
			c.Params[name] = value
		}
	}
	return map[string]func(*driver.Config){
		"clientFoundRows":   func(c *driver.Config) { c.ClientFoundRows = true },
		"multiStatements":   func(c *driver.Config) { c.MultiStatements = true },
		"parseTime":         func(c *driver.Config) { c.ParseTime, c.Loc = true, time.FixedZone("tokyo", 9*3600) },
		"interpolateParams": func(c *driver.Config) { c.InterpolateParams = true },
		"columnsWithAlias":  func(c *driver.Config) { c.ColumnsWithAlias = true },
		"time zone":         param("time_zone", "'-11:00'"),
		"collation":         func(c *driver.Config) { c.Collation = "latin1_swedish_ci" },
		"lax sql_mode":      param("sql_mode", "''"),
		"ANSI sql_mode":     param("sql_mode", "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,TRADITIONAL,HIGH_NOT_PRECEDENCE'"),
		"isolation":         param("tx_isolation", "'SERIALIZABLE'"),
	}
}

func TestMySQLFlags(t *testing.T) {
	t.Parallel()
	c := mysqlDatabase(t, mysqlConfig(t))
	mysqlTables(t, c, mysql.Options{})
	for name, set := range myFlags() {
		t.Run("[stores/MY3] "+name, func(t *testing.T) {
			t.Parallel()
			flagged(t, openStore(t, c, mysql.Options{}, set), openStore(t, c, mysql.Options{}, nil))
		})
	}
	t.Run("[stores/MY3, CT40] the kit with all of them at once", func(t *testing.T) {
		t.Parallel()
		caps := kitCaps(t)
		caps.Steps = 300
		storetest.Run(t, func(t testing.TB) storetest.Subject {
			return mysqlSubject(t, func(c *driver.Config) {
				for _, name := range []string{"clientFoundRows", "multiStatements", "parseTime", "time zone", "lax sql_mode", "isolation"} {
					myFlags()[name](c)
				}
			})
		}, caps)
	})
}

// flagged plays the way of a key through m, whose connections have a flag, and looks at it through plain, which has none.
func flagged(t *testing.T, m, plain *my) {
	t.Helper()
	ctx := t.Context()
	// Two keys that a collation or a lax sql_mode would make one, and a result of any bytes.
	one, two := pgClaim(idempo.GuardAtomic), pgClaim(idempo.GuardAtomic)
	one.Key.Tenant, two.Key.Tenant = "Tenant", "tenant "
	two.Key.ID = one.Key.ID
	body := bytes.Repeat([]byte("\x00\x27\\\xff?"), 10_000)
	for _, p := range []idempo.AcquireParams{one, two} {
		p.Snapshot = []byte("it's \\ \" \x00 ?")
		var done idempo.Record
		must(t, m.InTx(ctx, func(ctx context.Context) error {
			a := pgAcquire(t, ctx, m, p, idempo.VerdictRun)
			leased := pgAgain(p)
			leased.Guard = idempo.GuardLeased
			pgAcquire(t, t.Context(), plain, leased, idempo.VerdictInProgress)
			r := pgResult(p, a, string(body))
			r.Result.Header = [][2]string{{"X", "\xff\x00"}, {"X", ""}}
			var err error
			done, err = m.Complete(ctx, r)
			return err
		}))
		for _, s := range []*my{m, plain} {
			a := pgAcquire(t, t.Context(), s, func() idempo.AcquireParams { q := pgAgain(p); q.Guard = idempo.GuardLeased; return q }(), idempo.VerdictReplay)
			r := a.Record
			if !r.Result.Equal(done.Result) || !r.CompletedAt.Equal(done.CompletedAt) || !r.ExpiresAt.Equal(done.ExpiresAt) || r.Key != p.Key ||
				!bytes.Equal(r.Snapshot, p.Snapshot) || !r.ClaimedAt.Equal(done.ClaimedAt) {
				t.Errorf("came back as %+v, want %+v", r, done)
			}
			if off := time.Until(r.Now); off > time.Minute || off < -time.Minute {
				t.Errorf("the store's clock is %v off", off)
			}
		}
	}
	// Losing is seen whatever a row count says.
	l := pgClaim(idempo.GuardLeased)
	a := pgAcquire(t, ctx, m, l, idempo.VerdictRun)
	pgAcquire(t, ctx, m, pgAgain(l), idempo.VerdictInProgress)
	pgAcquire(t, ctx, m, l, idempo.VerdictRun)
	for range 2 { // the second changes nothing but rev
		_, err := m.Renew(ctx, idempo.RenewParams{Key: l.Key, Token: l.Token, Lease: l.Lease, Now: a.Record.Now})
		must(t, err)
	}
	stale := idempo.RenewParams{Key: l.Key, Token: pgAgain(l).Token, Lease: l.Lease}
	if _, err := m.Renew(ctx, stale); codeOf(err) != "lease_lost" {
		t.Errorf("a stale renewal: %v", err)
	}
	r, err := m.Release(ctx, idempo.ReleaseParams{Key: l.Key, Token: l.Token, To: idempo.StateFailed, Retention: time.Hour, Note: "über 'quoted' \\ 世界"})
	must(t, err)
	if got, err := plain.Lookup(ctx, idempo.LookupParams{Key: l.Key}); err != nil || got.Note != r.Note || !got.ExpiresAt.Equal(r.ExpiresAt) {
		t.Errorf("%+v %v, want %+v", got, err, r)
	}
	again := pgAgain(l)
	if a := pgAcquire(t, ctx, m, again, idempo.VerdictRun); a.Record.Attempt != 2 {
		t.Errorf("attempt %d", a.Record.Attempt)
	}
	history, err := m.Attempts(ctx, l.Key)
	if err != nil || len(history) != 1 || history[0].Attempt != 1 || history[0].Note != r.Note || !strings.HasPrefix(string(history[0].State), "failed") {
		t.Errorf("%+v %v", history, err)
	}
}
