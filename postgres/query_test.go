package postgres

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

func TestQueries(t *testing.T) {
	t.Parallel()
	all, err := queries(sqlkit.Names{Schema: "s", Prefix: "p_", Quote: '"'})
	if err != nil || len(all) < 20 {
		t.Fatal(len(all), err)
	}
	bare := regexp.MustCompile(`\$\d+($|[^:\d])`)
	for name, q := range all {
		if strings.Contains(q.sql, "{") || strings.HasSuffix(strings.TrimSpace(q.sql), ";") || strings.Contains(q.sql, "--") {
			t.Errorf("%s: a placeholder, a second statement or a comment is left:\n%s", name, q.sql)
		}
		if m := bare.FindString(q.sql); m != "" {
			t.Errorf("%s: argument %q has no type: a driver that sends it untyped fails", name, m)
		}
		for i, n := range q.names {
			if slices.Index(q.names, n) != i || q.columns[i] != column(n) {
				t.Errorf("%s: argument %s is counted twice or taken for another column", name, n)
			}
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	q := number("select $tenant_id, $body_sha256, $claimed_at, $claimed_at!, $now, $tenant_id, $unknown")
	if got := strings.Join(q.names, " "); got != "tenant_id body_sha256 claimed_at now unknown" {
		t.Error(got)
	}
	for _, want := range []string{"$1::text, $2::bytea, (case when $3::bigint >= 1152921504606846976 then t.now", ", (timestamptz 'epoch' + $3::bigint * interval '1 microsecond')",
		", (timestamptz 'epoch' + $4::bigint", ", $1::text, $5::text"} {
		if !strings.Contains(q.sql, want) {
			t.Errorf("%q is not in\n%s", want, q.sql)
		}
	}
	rec := idempo.Record{Key: idempo.Key{Tenant: "t"}, BodySHA256: []byte("s")}
	st := q.with(values(rec, time.Time{}), "unknown", "x", "now", int64(5))
	if len(st.Args) != 5 || st.Args[0] != "t" || string(st.Args[1].([]byte)) != "s" || st.Args[2] != nil || st.Args[3] != int64(5) || st.Args[4] != "x" {
		t.Errorf("%v", st.Args)
	}
}

func TestTimesAreDistancesFromTheServersClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	rec := idempo.Record{CreatedAt: now.Add(-time.Hour), ClaimedAt: now, LeaseUntil: now.Add(time.Minute), DueAt: now.Add(2 * time.Minute)}
	at := func(v []any, name string, want any) {
		t.Helper()
		if got := v[column(name)]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	judged := values(rec, now)
	at(judged, "created_at", now.Add(-time.Hour).UnixMicro())
	at(judged, "claimed_at", after)
	at(judged, "lease_until", after+time.Minute.Microseconds())
	at(judged, "due_at", rec.DueAt.UnixMicro()) // the caller's own
	at(judged, "expires_at", nil)
	plain := values(rec, time.Time{})
	at(plain, "claimed_at", now.UnixMicro())
	at(plain, "lease_until", rec.LeaseUntil.UnixMicro())
}

func TestWatch(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	is := func(r idempo.Record, want any) {
		t.Helper()
		if got := watch(r, time.Time{}); got != want {
			t.Errorf("%+v is watched at %v, want %v", r.State, got, want)
		}
	}
	// The plain way from claim to completion writes no watch.
	is(idempo.Record{State: idempo.StatePending, Attempt: 1, LeaseUntil: now}, nil)
	is(idempo.Record{State: idempo.StateCompleted, Attempt: 1, ExpiresAt: now, GoneAt: now}, nil)
	is(idempo.Record{State: idempo.StateExpired}, nil) // kept for ever
	is(idempo.Record{State: idempo.StateExpired, GoneAt: now}, now.UnixMicro())
	is(idempo.Record{State: idempo.StatePending, Attempt: 2, LeaseUntil: now}, now.UnixMicro())
	is(idempo.Record{State: idempo.StatePending, DueAt: now}, now.UnixMicro())
	is(idempo.Record{State: idempo.StateFailed, ExpiresAt: now}, now.UnixMicro())
	is(idempo.Record{State: idempo.StateIssued, ExpiresAt: now}, now.UnixMicro())
	is(idempo.Record{State: idempo.StateInDoubt, OnCrash: idempo.OnCrashHold}, endless)
	is(idempo.Record{State: idempo.StateInDoubt, OnCrash: idempo.OnCrashProbe, ChangedAt: now}, now.UnixMicro())
	is(idempo.Record{State: idempo.StateInDoubt, OnCrash: idempo.OnCrashProbe, DueAt: now.Add(1), ChangedAt: now}, now.UnixMicro())
	if got := watch(idempo.Record{State: idempo.StateIssued, ExpiresAt: now.Add(time.Second)}, now); got != after+time.Second.Microseconds() {
		t.Error(got)
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()
	a, b := &Store{id: "a"}, &Store{id: "b"}
	k := idempo.Key{Tenant: "t", Operation: "op"}
	seen := map[int64]string{}
	for name, n := range map[string]int64{
		"plain": a.lock(k, "d"), "another store": b.lock(k, "d"), "another digest": a.lock(k, "e"),
		"another operation": a.lock(idempo.Key{Tenant: "t", Operation: "op2"}, "d"), "another tenant": a.lock(idempo.Key{Tenant: "u", Operation: "op"}, "d"),
		"split elsewhere": a.lock(idempo.Key{Tenant: "to", Operation: "p"}, "d"),
	} {
		if seen[n] != "" {
			t.Errorf("%s and %s share a lock", name, seen[n])
		}
		seen[n] = name
	}
	if once, again := a.lock(k, "d"), a.lock(k, "d"); once != again {
		t.Error("the lock of a key changes")
	}
	p := idempo.AcquireParams{Key: idempo.Key{ID: "1"}, Aliases: []string{"2", "1"}, Unique: []string{"3", "2"}}
	if got := strings.Join(sqlkit.Digests(p), ""); got != "123" {
		t.Errorf("it claims %s, want every digest once, its own first", got)
	}
}
