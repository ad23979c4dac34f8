package storecheck

import (
	"context"
	"errors"
	"testing"

	"github.com/idempo/idempo"
)

func pgError(err error) (*idempo.Error, bool) { return errors.AsType[*idempo.Error](err) }

func TestPostgresAtomic(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p *pg) {
		ctx := t.Context()
		t.Run("[stores/PG2] effect and record commit together; the replay has the same bytes", func(t *testing.T) {
			c := pgClaim(idempo.GuardAtomic)
			var done idempo.Record
			must(t, p.InTx(ctx, func(ctx context.Context) error {
				a := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
				if n := p.count(t, `select count(*) from SCHEMA.records where idempotency_key = $1`, []byte(c.Key.ID)); n != 0 {
					t.Errorf("%d rows before Complete", n)
				}
				must(t, p.effect(ctx, c.Key.ID[:8]))
				var err error
				done, err = p.Complete(ctx, pgResult(c, a, "body"))
				return err
			}))
			if n := p.count(t, `select count(*) from SCHEMA.effects where what = $1`, c.Key.ID[:8]); n != 1 {
				t.Errorf("%d effects", n)
			}
			must(t, p.InTx(ctx, func(ctx context.Context) error {
				a := pgAcquire(t, ctx, p, pgAgain(c), idempo.VerdictReplay)
				if !a.Record.Result.Equal(done.Result) || !a.Record.CompletedAt.Equal(done.CompletedAt) || !a.Record.ExpiresAt.Equal(done.ExpiresAt) {
					t.Errorf("replay %+v, completed %+v", a.Record, done)
				}
				return nil
			}))
		})
		t.Run("a leased claim, renewed and completed", func(t *testing.T) {
			c := pgClaim(idempo.GuardLeased)
			a := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
			pgAcquire(t, ctx, p, pgAgain(c), idempo.VerdictInProgress)
			pgAcquire(t, ctx, p, c, idempo.VerdictRun)
			_, err := p.Renew(ctx, idempo.RenewParams{Key: c.Key, Token: c.Token, Lease: c.Lease})
			must(t, err)
			_, err = p.Complete(ctx, pgResult(c, a, "body"))
			must(t, err)
			_, err = p.Complete(ctx, pgResult(c, a, "body"))
			must(t, err)
			if _, err = p.Complete(ctx, pgResult(c, a, "other")); codeOf(err) != "wrong_state" {
				t.Error(err)
			}
			pgAcquire(t, ctx, p, pgAgain(c), idempo.VerdictReplay)
		})
	})
}
