package storecheck

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

// TestPostgresConflictAnywhere has the server itself refuse one statement of a call after the other. Those that
// read the clock, by a function that stands before the server's own in the search path, and those that write a record, by a
// trigger, count, and raise at the number that is set. COMMIT has a test of its own.
func TestPostgresConflictAnywhere(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, kind := range pgOpeners() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			o, schema := migrated(t, dsn, postgres.Options{}), schemaName(t, dsn)
			db := openDB(t, "pgx", dsn)
			_, err := db.ExecContext(t.Context(), fmt.Sprintf(`create schema "%[1]s";
create sequence "%[1]s".calls;
create table "%[1]s".raises (n bigint not null, state text not null);
create function "%[1]s".clock_timestamp() returns timestamptz language plpgsql volatile as $$
declare call bigint := nextval('"%[1]s".calls');
    wanted text := (select state from "%[1]s".raises where n = call);
begin
    if wanted is not null then
        raise exception 'injected' using errcode = wanted;
    end if;
    return pg_catalog.clock_timestamp();
end $$;
create function "%[1]s".writes() returns trigger language plpgsql as $$ begin perform "%[1]s".clock_timestamp(); return new; end $$;
create trigger writes before insert or update on "%[2]s".records for each row execute function "%[1]s".writes()`, schema, o.Schema))
			must(t, err)
			p := kind.open(t, withParam(t, dsn, "search_path", schema+",pg_catalog"), o)
			p.db = db
			e := pgEngine(t, p)
			arm := func(n int, state string) {
				t.Helper()
				_, err := db.ExecContext(t.Context(), fmt.Sprintf(`delete from "%[1]s".raises; insert into "%[1]s".raises values (%[2]d, '%[3]s'); select setval('"%[1]s".calls', 1, false)`, schema, n, state))
				must(t, err)
			}
			for _, operation := range []string{"atomic", "leased"} {
				for _, state := range []string{"40001", "40P01", "55P03"} {
					t.Run(fmt.Sprintf("[stores/CT18] %s: %s at every statement in turn: the caller sees no error, one effect", operation, state), func(t *testing.T) {
						hit := 0
						for n := 1; ; n++ {
							id := fmt.Sprintf("%s %s %d", operation, state, n)
							arm(n, state)
							runs := 0
							b, err := e.Do(t.Context(), request(operation, id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
								runs++
								var err error
								if operation == "atomic" {
									err = p.effect(ctx, id)
								}
								return idempo.Result{Status: 201}, err
							})
							if calls := p.count(t, fmt.Sprintf(`select last_value - case when is_called then 0 else 1 end from "%s".calls`, schema)); calls < n {
								break
							}
							hit++
							if state == "55P03" && errors.Is(err, idempo.ErrInProgress) && runs == 0 { // CT17: a time-out in a claim
								continue
							}
							if err != nil || b.Verdict != idempo.VerdictRun || operation == "leased" && runs != 1 {
								t.Errorf("at statement %d: %q, %v, %d runs", n, b.Verdict, err, runs)
							}
							if effects := p.count(t, `select count(*) from SCHEMA.effects where what = $1`, id); operation == "atomic" && effects != 1 {
								t.Errorf("at statement %d: %d effects", n, effects)
							}
						}
						if hit < 2 {
							t.Errorf("void: only %d statements were hit", hit)
						}
					})
				}
			}
		})
	}
}
