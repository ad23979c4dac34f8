package storecheck

import (
	"context"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/postgres"
)

func TestPostgresHolder(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	t.Run("[operations/OP48] [operations/OP20] a key that runs in an open transaction is found by its lock, and only there", func(t *testing.T) {
		t.Parallel()
		o := migrated(t, dsn, postgres.Options{})
		for _, opener := range pgOpeners() {
			p := opener.open(t, withParam(t, dsn, "application_name", "shop"), o)
			looks, err := postgres.New(t.Context(), openDB(t, "pgx", dsn), o)
			must(t, err)
			eng, err := idempo.New(p.Store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
				Operations: []idempo.Operation{{Name: "pay", Guard: idempo.GuardAtomic}}})
			must(t, err)
			ops, err := operator.New(looks, operator.Config{Engine: eng})
			must(t, err)
			key := idempo.Key{Tenant: "acct_7", Operation: "pay", ID: "order-81 " + opener.name}
			show := func(by operator.Principal) (operator.Shown, error) {
				return ops.Show(t.Context(), operator.ShowParams{By: by, Target: operator.Target{Key: key}})
			}
			me, other := operator.Principal{Role: operator.RoleViewer}, operator.Principal{Role: operator.RoleViewer, Tenants: []string{"acct_8"}}
			if _, err := show(me); operator.CodeOf(err) != operator.CodeNotFound {
				t.Errorf("%s: before: %v", opener.name, err)
			}
			begun := time.Now().Add(-time.Minute)
			_, err = eng.Do(t.Context(), idempo.Request{Key: key, Input: [][]byte{[]byte("x")}}, func(context.Context, *idempo.Claim) (idempo.Result, error) {
				shown, err := show(me)
				if err != nil || shown.Held.Session == "" || shown.Held.Application != "shop" || shown.Held.Since.Before(begun) || shown.Record.Ref() != eng.Ref(key, "") || len(shown.Next) != 1 {
					t.Errorf("%s: %+v, %v", opener.name, shown.Held, err)
				}
				if _, err := show(other); operator.CodeOf(err) != operator.CodeNotFound {
					t.Errorf("%s: another tenant's operator sees it: %v", opener.name, err)
				}
				return idempo.Result{Status: 201}, nil
			})
			must(t, err)
			shown, err := show(me)
			if err != nil || !shown.Held.IsZero() || shown.Record.State != idempo.StateCompleted {
				t.Errorf("%s: after: %+v, %v", opener.name, shown, err)
			}
		}
	})
}
