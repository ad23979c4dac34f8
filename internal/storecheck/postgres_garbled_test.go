package storecheck

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// A row that nobody of ours has written is never run, matched, replayed, changed or swept, and stands in nobody's way.
func TestPostgresGarbledRows(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p *pg) {
		ctx := t.Context()
		const over = `, expires_at = now() - interval '1 day', gone_at = now() - interval '1 hour'`
		for _, set := range []string{
			`state = 'done'` + over, `state = ''` + over, `state = 'Completed'`, `guard = 'none'`, `on_crash = 'again'`, `format = 9` + over,
			`response_headers = 'garbage'`, `response_headers = '[["A"]]'`, `refs = '{'`,
		} {
			t.Run("[security/SEC27] "+set, func(t *testing.T) {
				c, other := pgClaim(idempo.GuardLeased), pgClaim(idempo.GuardLeased)
				won := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
				_, err := p.Complete(ctx, pgResult(c, won, "body"))
				must(t, err)
				row := func() string {
					var s string
					must(t, p.db.QueryRowContext(ctx, fmt.Sprintf(`select r::text from "%s".records r where idempotency_key = $1`, p.o.Schema), []byte(c.Key.ID)).Scan(&s))
					return s
				}
				_, err = p.db.ExecContext(ctx, fmt.Sprintf(`update "%s".records set %s where idempotency_key = $1`, p.o.Schema, set), []byte(c.Key.ID))
				must(t, err)
				before := row()
				for what, call := range map[string]func() error{
					"a leased claim": func() error {
						a, err := p.Acquire(ctx, pgAgain(c))
						return verdictOr(a.Verdict, err)
					},
					"an atomic claim": func() error {
						again := pgAgain(c)
						again.Guard = idempo.GuardAtomic
						return p.InTx(ctx, func(ctx context.Context) error {
							a, err := p.Acquire(ctx, again)
							return verdictOr(a.Verdict, err)
						})
					},
					"a renewal": func() error {
						_, err := p.Renew(ctx, idempo.RenewParams{Key: c.Key, Token: c.Token, Lease: time.Minute})
						return err
					},
					"a release": func() error {
						_, err := p.Release(ctx, idempo.ReleaseParams{Key: c.Key, Token: c.Token, To: idempo.StateFailed})
						return err
					},
					"a look": func() error {
						r, err := p.Lookup(ctx, idempo.LookupParams{Key: c.Key})
						return verdictOr(idempo.Verdict(r.State), err)
					},
				} {
					if got := codeOf(call()); got != "record_unreadable" {
						t.Errorf("%s: %s, want record_unreadable", what, got)
					}
				}
				pgAcquire(t, ctx, p, other, idempo.VerdictRun)
				for range 3 {
					_, err := p.Sweep(ctx, 100)
					must(t, err)
				}
				if now := row(); now != before {
					t.Errorf("the row is now\n%s, was\n%s", now, before)
				}
			})
		}
	})
}

// verdictOr is err, or what was said instead.
func verdictOr(v idempo.Verdict, err error) error {
	if err == nil {
		return fmt.Errorf("it said %q", v)
	}
	return err
}
