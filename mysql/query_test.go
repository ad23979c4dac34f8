package mysql

import (
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

func TestQueries(t *testing.T) {
	t.Parallel()
	all, err := queries(sqlkit.Names{Schema: "s", Prefix: "p_", Quote: '`'})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("[stores/MY3] no IGNORE, REPLACE, GET_LOCK, row count, in any statement", func(t *testing.T) {
		for name, q := range all {
			text := strings.ToLower(strings.Join(q.text, "?"))
			for _, bad := range []string{"ignore", "replace", "get_lock", "row_count", "found_rows"} {
				if strings.Contains(text, bad) {
					t.Errorf("%s has %s", name, bad)
				}
			}
		}
	})
	t.Run("every argument is a column, or one that is known", func(t *testing.T) {
		known := map[string]bool{"clock": true}
		for _, c := range sqlkit.Columns() {
			known[c] = true
		}
		for name := range strings.FieldsSeq("digests nowait alias aliases watch_at next_rev old_attempt old_state old_token old_rev alive now limit operations sweeper keys endless" +
			" after_tenant after_operation after_key tenant states any_state ref id mark at actor role channel action outcome code state_before state_after reason evidence" +
			" ended_at span direction any_tenant tenants since until soon look table" +
			" subscriber receipt_key lane rev status reason holds source message_id message_type version headers body position message_at attempts failures received_at next_at" +
			" due delay lock seqs after bodiless any_status statuses wanted sealed body_for keep_for body_until gone_at times begin_at process data records attempts audit window offset resource_kind resource_name needle traced") {
			known[name] = true
		}
		for name, q := range all {
			for _, a := range q.names {
				if !known[a] {
					t.Errorf("%s: $%s", name, a)
				}
			}
		}
	})
	t.Run("arguments as literals", func(t *testing.T) {
		q := cut("a $idempotency_key b $note c $attempt d $failing e $claimed_at f $due_at g $body_sha256 h $keys i $digests j $none")
		rec := idempo.Record{Key: idempo.Key{ID: "it's\x00\xff\\"}, Note: "?", Attempt: -7, ClaimedAt: time.Date(2026, 1, 2, 3, 4, 5, 678_901_999, time.FixedZone("x", 3600))}
		rec.Result.Failing = true
		st := q.with(&rec, "keys", []idempo.Key{{Tenant: "t", Operation: "o", ID: "1"}, {Tenant: "t", Operation: "", ID: "2"}}, "digests", []string{"a", ""}, "none", []string{})
		want := `a x'69742773` + `00ff5c' b x'3f' c -7 d 1 e timestamp'2026-01-02 02:04:05.678901' f null g null` +
			` h tenant_id = x'74' and operation = x'6f' and idempotency_key = x'31' or tenant_id = x'74' and operation = '' and idempotency_key = x'32' i x'61','' j null`
		if st.sql != want || len(st.args) != 0 {
			t.Errorf("%s\n%v\nwant\n%s", st.sql, st.args, want)
		}
	})
	t.Run("what is long travels apart", func(t *testing.T) {
		q := cut("$response_body, $note")
		long := make([]byte, maxLiteral+1)
		st := q.with(&idempo.Record{Result: idempo.Result{Body: long}}, "note", strings.Repeat("n", maxLiteral))
		if len(st.args) != 1 || !strings.HasPrefix(st.sql, "?, x'6e6e") {
			t.Errorf("%d arguments, %.20s", len(st.args), st.sql)
		}
		if st = q.with(nil); st.sql != "null, null" {
			t.Error(st.sql)
		}
		if st = cut("$clock").with(nil); st.sql != clock {
			t.Error(st.sql)
		}
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time { return time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC) }
	is := func(what string, rec idempo.Record, old idempo.State, want any) {
		t.Helper()
		if got := watch(rec, old); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	is("a claim", idempo.Record{State: idempo.StatePending, LeaseUntil: at(1)}, "", at(1))
	is("enqueued", idempo.Record{State: idempo.StatePending, LeaseUntil: at(1), DueAt: at(9)}, "", at(9))
	is("taken", idempo.Record{State: idempo.StatePending, LeaseUntil: at(10), DueAt: at(9)}, idempo.StatePending, at(10))
	is("held", idempo.Record{State: idempo.StateInDoubt, OnCrash: idempo.OnCrashHold, DueAt: at(1)}, idempo.StatePending, endless)
	is("to be probed", idempo.Record{State: idempo.StateInDoubt, OnCrash: idempo.OnCrashProbe, DueAt: at(3)}, idempo.StatePending, at(3))
	is("to be probed at once", idempo.Record{State: idempo.StateInDoubt, OnCrash: idempo.OnCrashProbe, ChangedAt: at(2)}, idempo.StatePending, at(2))
	is("the plain way", idempo.Record{State: idempo.StateCompleted, ExpiresAt: at(5)}, idempo.StatePending, nil)
	is("late truth", idempo.Record{State: idempo.StateCompleted, ExpiresAt: at(5)}, idempo.StateInDoubt, at(5))
	is("failed", idempo.Record{State: idempo.StateFailed, ExpiresAt: at(5)}, idempo.StatePending, at(5))
	is("issued", idempo.Record{State: idempo.StateIssued, ExpiresAt: at(5)}, "", at(5))
	is("a tombstone", idempo.Record{State: idempo.StateExpired, GoneAt: at(7)}, idempo.StateCompleted, at(7))
	is("a tombstone for ever", idempo.Record{State: idempo.StateExpired}, idempo.StateCompleted, endless)
}

func TestSplit(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("1", 32), strings.Repeat("2", 32)
	if got := split(joined([]string{one, two}).([]byte)); len(got) != 2 || got[0] != one || got[1] != two {
		t.Errorf("%q", got)
	}
	if joined(nil) != nil || split(nil) != nil {
		t.Error("something of nothing")
	}
}
