package storecheck

import (
	"context"
	"fmt"
	"testing"

	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/storetest"
)

// subject opens a store of one kind, twice on the same schema, for the kit.
func (o pgOpener) subject(t testing.TB, dsn string) storetest.Subject {
	return o.subjectOn(t, dsn, dsn)
}

// subjectOn is subject for a store that reaches its server another way than who prepares it.
func (o pgOpener) subjectOn(t testing.TB, dsn, through string) storetest.Subject {
	opts := migrated(t, dsn, postgres.Options{})
	return o.subjectIn(t, dsn, through, opts)
}

// subjectAs is subjectOn in a schema that prepare makes.
func (o pgOpener) subjectAs(t testing.TB, dsn, through string, prepare func(postgres.Options)) storetest.Subject {
	opts := postgres.Options{Schema: schemaName(t, dsn)}
	prepare(opts)
	return o.subjectIn(t, dsn, through, opts)
}

func (o pgOpener) subjectIn(t testing.TB, dsn, through string, opts postgres.Options) storetest.Subject {
	p, again := o.open(t, through, opts), o.open(t, through, opts)
	p.db = openDB(t, "pgx", dsn)
	sub := storetest.Subject{
		Store: p.Store, Again: again.Store,
		Effect: func(ctx context.Context, name string) error {
			return p.exec(ctx, fmt.Sprintf(`insert into "%s".done (what) values ($1)`, opts.Schema), name)
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			err = p.db.QueryRowContext(ctx, fmt.Sprintf(`select count(*) from "%s".done where what = $1`, opts.Schema), name).Scan(&n)
			return n, err
		},
		End:    p.end,
		Poison: func(ctx context.Context) { _ = p.exec(ctx, "select 1/0") },
		Own:    p.begin,
	}
	if dsn == through { // behind a pooler the connections are the pooler's
		p.logTransitions(t, &sub)
	}
	return sub
}

func TestPostgresKit(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run("[stores/CT40, PG7] "+o.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Subject { return o.subject(t, dsn) },
				kitCaps(t))
		})
	}
}
