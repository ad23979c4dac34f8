package storecheck

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

// sqlNames translates between the kit, whose keys are digests of any bytes and whose fingerprints have any recipe, and
// what Go and SQL share: plain text keys, one recipe.
type sqlNames struct {
	mu     sync.Mutex
	ids    map[string]string // stored digest: the kit's
	hashes map[string]idempo.AcquireParams
}

func newSQLNames() *sqlNames {
	return &sqlNames{ids: map[string]string{}, hashes: map[string]idempo.AcquireParams{}}
}

// text is the key that a SQL caller would have.
func (n *sqlNames) text(k idempo.Key) string { return hex.EncodeToString([]byte(k.ID)) }

// key is k as Go stores it for an operation with SQL.
func (n *sqlNames) key(k idempo.Key) idempo.Key {
	var b []byte
	for _, f := range []string{"idempo-sql-1", k.Tenant, k.Operation, n.text(k)} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
	}
	d := sha256.Sum256(b)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ids[string(d[:])] = k.ID
	k.ID = string(d[:])
	return k
}

// fold returns one hash for p's hash and recipe.
func (n *sqlNames) fold(p idempo.AcquireParams) []byte {
	if p.Hash == nil {
		return nil
	}
	d := sha256.Sum256(append([]byte(p.Recipe+"\x00"), p.Hash...))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hashes[string(d[:])] = idempo.AcquireParams{Hash: append([]byte{}, p.Hash...), Recipe: p.Recipe}
	return d[:]
}

func (n *sqlNames) params(p idempo.AcquireParams) idempo.AcquireParams {
	p.Key = n.key(p.Key)
	if p.Hash = n.fold(p); p.Hash != nil {
		p.Recipe = "sql1"
	}
	return p
}

// back is a stored record as the kit knows it.
func (n *sqlNames) back(r idempo.Record) idempo.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id, ok := n.ids[r.Key.ID]; ok {
		r.Key.ID = id
	}
	if p, ok := n.hashes[string(r.Hash)]; ok && r.Recipe == "sql1" {
		r.Hash, r.Recipe = append([]byte{}, p.Hash...), p.Recipe
	}
	return r
}

// goShared is the Go store, as an engine uses it for operations that it shares with SQL.
type goShared struct {
	store *postgres.Store
	n     *sqlNames
}

func (s *goShared) Joined(ctx context.Context) (tx, own bool, err error) { return s.store.Joined(ctx) }

func (s *goShared) InTx(ctx context.Context, fn func(context.Context) error) error {
	return s.store.InTx(ctx, fn)
}

func (s *goShared) Sweep(ctx context.Context, batch int) (int, error) {
	return s.store.Sweep(ctx, batch)
}

func (s *goShared) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	a, err := s.store.Acquire(ctx, s.n.params(p))
	a.Record = s.n.back(a.Record)
	return a, err
}

func (s *goShared) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	p.Key = s.n.key(p.Key)
	r, err := s.store.Renew(ctx, p)
	return s.n.back(r), err
}

func (s *goShared) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	p.Key, p.Won = s.n.key(p.Key), s.n.params(p.Won)
	if p.Issue != nil {
		next := s.n.params(*p.Issue)
		p.Issue = &next
	}
	r, err := s.store.Complete(ctx, p)
	return s.n.back(r), err
}

func (s *goShared) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	p.Key = s.n.key(p.Key)
	r, err := s.store.Release(ctx, p)
	return s.n.back(r), err
}

func (s *goShared) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	p.Key = s.n.key(p.Key)
	r, err := s.store.Lookup(ctx, p)
	return s.n.back(r), err
}

func (s *goShared) Take(ctx context.Context, p idempo.TakeParams) ([]idempo.Record, error) {
	rs, err := s.store.Take(ctx, p)
	for i := range rs {
		rs[i] = s.n.back(rs[i])
	}
	return rs, err
}

// plainSQL is an idempo.Store made of nothing but the SQL functions, as a program in another language would call them.
// What they have no argument for (owner, snapshot, trace, a test's retention of a failure) it writes into the row that
// they wrote, in the same transaction; enqueueing, taking, sweeping are the Go store's.
type plainSQL struct {
	*goShared
	db     *sql.DB
	schema string
}

type plainKey struct{}

// plainTx is a transaction that a context carries.
type plainTx struct {
	tx     *sql.Tx
	own    bool
	over   bool
	broken error
	failed []func(context.Context) error // what is kept of it after a rollback
}

// in runs f in the transaction of ctx, within a savepoint, or in one of its own.
func (s *plainSQL) in(ctx context.Context, op string, now time.Time, f func(ctx context.Context, tx *sql.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return &idempo.Error{Op: op, Code: "unavailable", Err: err}
	}
	clock := ""
	if !now.IsZero() {
		clock = now.Format(time.RFC3339Nano)
	}
	if t, _ := ctx.Value(plainKey{}).(*plainTx); t != nil {
		if t.over {
			return &idempo.Error{Op: op, Code: "tx_ended"}
		}
		if _, err := t.tx.ExecContext(ctx, "savepoint idempo"); err != nil {
			return plainError(op, err, true)
		}
		_, err := t.tx.ExecContext(ctx, "select set_config('idempo_test.now', $1, true)", clock)
		if err == nil {
			err = f(ctx, t.tx)
		}
		if err != nil {
			_, _ = t.tx.ExecContext(ctx, "rollback to savepoint idempo")
		}
		_, _ = t.tx.ExecContext(ctx, "release savepoint idempo")
		err = plainError(op, err, true)
		if errors.Is(err, idempo.ErrLeaseLost) && op == "complete" && t.broken == nil {
			t.broken = err
		}
		return err
	}
	for try := 0; ; try++ {
		err := s.alone(ctx, clock, f)
		if err == nil || !postgres.Conflict(err) || try == 5 {
			return plainError(op, err, false)
		}
	}
}

func (s *plainSQL) alone(ctx context.Context, clock string, f func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "select set_config('idempo_test.now', $1, true)", clock); err != nil {
		return err
	}
	if err := f(postgres.WithTx(ctx, tx), tx); err != nil {
		return err
	}
	return tx.Commit()
}

// plainError turns an SQLSTATE of the functions into the error of the Go package that says the same.
func plainError(op string, err error, inTx bool) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e
	}
	code := "unavailable"
	switch pgState(err) {
	case "IP001", "IP006":
		code = "lease_lost"
	case "IP002":
		code = "wrong_state"
	case "IP003":
		code = "invalid"
	case "IP004":
		code = "record_unreadable"
	case "IP005":
		code = "not_issued"
	case "25P02":
		code = "tx_aborted"
	default:
		switch {
		case errors.Is(err, sql.ErrTxDone):
			code = "tx_ended"
		case inTx && postgres.Conflict(err):
			code = "tx_conflict"
		}
	}
	return &idempo.Error{Op: op, Code: code, Err: err}
}

func pgState(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

func micros(d time.Duration) string { return fmt.Sprintf("%d microseconds", d.Microseconds()) }

// sql fills in the schema.
func (s *plainSQL) sql(q string) string { return strings.ReplaceAll(q, "IDEMPO", `"`+s.schema+`"`) }

// put changes columns of the row of key, which the functions have no argument for.
func (s *plainSQL) put(ctx context.Context, tx *sql.Tx, key idempo.Key, set string, args ...any) error {
	k := s.n.key(key)
	q := s.sql("update IDEMPO.records set " + set + " and tenant_id = $1 and operation = $2 and idempotency_key = $3")
	_, err := tx.ExecContext(ctx, q, append([]any{k.Tenant, k.Operation, []byte(k.ID)}, args...)...)
	return err
}

func nullable[T ~string | ~[]byte](v T) any {
	if len(v) == 0 {
		return nil
	}
	return v
}

// Acquire implements idempo.Store by claim and issue.
func (s *plainSQL) Acquire(ctx context.Context, p idempo.AcquireParams) (a idempo.Acquired, err error) {
	t, _ := ctx.Value(plainKey{}).(*plainTx)
	if p.Issue == 0 && p.Due.IsZero() && (p.Guard == idempo.GuardAtomic) != (t != nil) {
		return a, &idempo.Error{Op: "acquire", Code: "misuse"}
	}
	err = s.in(ctx, "acquire", p.Now, func(ctx context.Context, tx *sql.Tx) error {
		switch {
		case !p.Due.IsZero():
			a, err = s.goShared.Acquire(ctx, p)
		case p.Issue > 0:
			a, err = s.issue(ctx, tx, p)
		default:
			a, err = s.claim(ctx, tx, p)
		}
		return err
	})
	if err != nil {
		return idempo.Acquired{}, err
	}
	return a, nil
}

func (s *plainSQL) claim(ctx context.Context, tx *sql.Tx, p idempo.AcquireParams) (a idempo.Acquired, err error) {
	before, err := s.goShared.Lookup(ctx, idempo.LookupParams{Key: p.Key, Now: p.Now})
	if err != nil {
		return a, err
	}
	var verdict string
	var state, kind, name, sealed sql.NullString
	var token, headers, body []byte
	var attempt, status, retry sql.NullInt64
	var kept bool
	var expires sql.NullTime
	row := tx.QueryRowContext(ctx, s.sql(`select verdict, token, attempt, lapsed, state, status_code, response_headers, response_body, body_kept,
		resource_type, resource_id, expires_at, (extract(epoch from retry_after) * 1000000)::bigint, sealed
		from IDEMPO.claim(tenant_id => $1, operation => $2, idempotency_key => $3, request_hash => $4, guard => $5, lease => $6::text::interval,
			wait => $7::text::interval, token => $8, on_crash => $9, start_mark => $10, require_issued => $11)`),
		p.Key.Tenant, p.Key.Operation, s.n.text(p.Key), s.n.fold(p), string(p.Guard), micros(p.Lease), micros(p.Wait), p.Token[:],
		string(p.OnCrash), p.StartMark && p.Guard == idempo.GuardLeased, p.RequireIssued)
	if err := row.Scan(&verdict, &token, &attempt, &a.Lapsed, &state, &status, &headers, &body, &kept, &kind, &name, &expires, &retry, &sealed); err != nil {
		return a, err
	}
	a.Verdict, a.RetryAfter = idempo.Verdict(verdict), time.Duration(retry.Int64)*time.Microsecond
	if a.Verdict == idempo.VerdictRun {
		if string(token) != string(p.Token[:]) {
			return a, errors.New("claim returned another token")
		}
		detail := any(p.Detail)
		if before.State != "" && before.State != idempo.StateIssued {
			detail = nil
		}
		err := s.put(ctx, tx, p.Key, `owner = $4, surface = $5, trace = $6, snapshot = coalesce(snapshot, $7), request_detail = coalesce(request_detail, $8),
			sealed = case when snapshot is null then null else sealed end, started_at = case when $11 then null else started_at end,
			derived_key = case when derived_key = `+s.sql("IDEMPO")+`.derive_key(tenant_id, operation, $9, generation) then $10 else derived_key end
			where owner like 'sql %'`, p.Owner, p.Surface, nullable(p.Trace), p.Snapshot, detail, s.n.text(p.Key), nullable(p.DerivedKey),
			p.StartMark && p.Guard == idempo.GuardAtomic)
		if err != nil {
			return a, err
		}
	}
	a.Record, err = s.goShared.Lookup(ctx, idempo.LookupParams{Key: p.Key, Now: p.Now})
	if err != nil {
		return a, err
	}
	if a.Record.State == "" { // an open transaction has it
		a.Record = idempo.Record{Key: p.Key, Guard: p.Guard, Now: a.Record.Now}
	}
	a.Record.State = idempo.State(state.String)
	if attempt.Valid {
		a.Record.Attempt, a.Record.ExpiresAt = attempt.Int64, expires.Time.UTC()
	}
	if !expires.Valid {
		a.Record.ExpiresAt = time.Time{}
	}
	head, err := sqlHeaders(headers)
	a.Record.Result = idempo.Result{Status: int(status.Int64), Header: head, Body: body, Failing: a.Record.Result.Failing,
		Resource: idempo.Resource{Type: kind.String, ID: name.String}}
	if a.Verdict == idempo.VerdictReplay || a.Verdict == idempo.VerdictRun {
		a.Record.BodyKept = kept
	}
	if a.Verdict == idempo.VerdictMismatch {
		a.Record.Snapshot, a.Record.Note = nil, ""
	}
	return a, err
}

// Renew implements idempo.Store by renew.
func (s *plainSQL) Renew(ctx context.Context, p idempo.RenewParams) (r idempo.Record, err error) {
	err = s.in(ctx, "renew", p.Now, func(ctx context.Context, tx *sql.Tx) error {
		if !p.Refer.IsZero() {
			r, err = s.goShared.Renew(ctx, p)
			return err
		}
		row := tx.QueryRowContext(ctx, s.sql(recorded+`IDEMPO.renew(tenant_id => $1, operation => $2, idempotency_key => $3, token => $4,
			lease => $5::text::interval, start => $6)`), p.Key.Tenant, p.Key.Operation, s.n.text(p.Key), p.Token[:], micros(p.Lease), p.Start)
		answer, err := scanRecorded(row)
		if err != nil {
			return err
		}
		if err := s.put(ctx, tx, p.Key, "derived_key = coalesce($4, derived_key) where true", nullable(p.DerivedKey)); err != nil {
			return err
		}
		r, err = s.read(ctx, p.Key, p.Now, answer)
		return err
	})
	return r, err
}

// Complete implements idempo.Store by complete. A failing result in a transaction of its own is what is left of it: the
// transaction is rolled back, the key claimed again with the same token, and completed.
func (s *plainSQL) Complete(ctx context.Context, p idempo.CompleteParams) (r idempo.Record, err error) {
	t, _ := ctx.Value(plainKey{}).(*plainTx)
	if p.Won.Guard == idempo.GuardAtomic && t == nil {
		return r, &idempo.Error{Op: "complete", Code: "misuse"}
	}
	err = s.in(ctx, "complete", p.Now, func(ctx context.Context, tx *sql.Tx) error {
		r, err = s.complete(ctx, tx, p)
		return err
	})
	if err == nil && t != nil && t.own && p.Result.Failing && p.Won.Guard == idempo.GuardAtomic {
		t.failed = append(t.failed, func(ctx context.Context) error {
			return s.in(ctx, "complete", p.Now, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := s.claim(ctx, tx, p.Won); err != nil {
					return err
				}
				_, err := s.complete(ctx, tx, p)
				return err
			})
		})
	}
	if err != nil {
		return idempo.Record{}, err
	}
	return r, nil
}

func (s *plainSQL) complete(ctx context.Context, tx *sql.Tx, p idempo.CompleteParams) (r idempo.Record, err error) {
	before, err := s.goShared.Lookup(ctx, idempo.LookupParams{Key: p.Key, Now: p.Now})
	if err != nil {
		return r, err
	}
	var tombstone any
	if p.Tombstone != idempo.Forever {
		tombstone = micros(p.Tombstone)
	}
	row := tx.QueryRowContext(ctx, s.sql(recorded+`IDEMPO.complete(tenant_id => $1, operation => $2, idempotency_key => $3, token => $4,
		status_code => $5, response_body => $6, response_headers => $7::text::jsonb, resource_type => $8, resource_id => $9, failing => $10,
		retention => $11::text::interval, tombstone => $12::text::interval, tombstone_forever => $13)`),
		p.Key.Tenant, p.Key.Operation, s.n.text(p.Key), p.Token[:], p.Result.Status, p.Result.Body, jsonHeaders(p.Result.Header),
		nullable(p.Result.Resource.Type), nullable(p.Result.Resource.ID), p.Result.Failing, micros(p.Retention), tombstone, p.Tombstone == idempo.Forever)
	answer, err := scanRecorded(row)
	if err != nil {
		return r, err
	}
	if before.State != idempo.StateCompleted {
		err := s.put(ctx, tx, p.Key, `body_size = $4, body_sha256 = $5, body_kept = $6, sealed = $7, refs = case when $8::bytea is null then refs else $8 end where true`,
			p.Size, p.SHA256, p.Kept, nullable(p.Sealed), nullable(referText(p.References)))
		if err != nil {
			return r, err
		}
	}
	if p.Issue != nil {
		if _, err := s.issue(ctx, tx, *p.Issue); err != nil {
			return r, err
		}
	}
	return s.read(ctx, p.Key, p.Now, answer)
}

// Release implements idempo.Store by release.
func (s *plainSQL) Release(ctx context.Context, p idempo.ReleaseParams) (r idempo.Record, err error) {
	happened := map[idempo.State]string{idempo.StateFailed: "no", idempo.StateInDoubt: "maybe", idempo.StateIssued: "forget"}[p.To]
	err = s.in(ctx, "release", p.Now, func(ctx context.Context, tx *sql.Tx) error {
		before, err := s.goShared.Lookup(ctx, idempo.LookupParams{Key: p.Key, Now: p.Now})
		if err != nil {
			return err
		}
		row := tx.QueryRowContext(ctx, s.sql(recorded+`IDEMPO.release(tenant_id => $1, operation => $2, idempotency_key => $3, token => $4,
			happened => $5, note => $6)`), p.Key.Tenant, p.Key.Operation, s.n.text(p.Key), p.Token[:], happened, nullable(sqlText(p.Note)))
		answer, err := scanRecorded(row)
		if err != nil {
			return err
		}
		if answer.State == idempo.StateFailed && before.State != idempo.StateFailed {
			err = s.put(ctx, tx, p.Key, `expires_at = changed_at + $4::text::interval, watch_at = changed_at + $4::text::interval where true`, micros(p.Retention))
			answer.ExpiresAt = answer.ChangedAt.Add(p.Retention)
		}
		if answer.State == idempo.StateInDoubt && before.State == idempo.StatePending && p.Due > 0 {
			err = s.put(ctx, tx, p.Key, `due_at = changed_at + $4::text::interval, watch_at = changed_at + $4::text::interval where true`, micros(p.Due))
		}
		if err != nil {
			return err
		}
		if r = (idempo.Record{Key: p.Key}); answer.State != "" {
			r, err = s.read(ctx, p.Key, p.Now, answer)
		}
		return err
	})
	return r, err
}

// issue hands a key out.
func (s *plainSQL) issue(ctx context.Context, tx *sql.Tx, p idempo.AcquireParams) (a idempo.Acquired, err error) {
	before, err := s.goShared.Lookup(ctx, idempo.LookupParams{Key: p.Key, Now: p.Now})
	if err != nil {
		return a, err
	}
	row := tx.QueryRowContext(ctx, s.sql(recorded+`IDEMPO.issue(tenant_id => $1, operation => $2, idempotency_key => $3, "for" => $4::text::interval)`),
		p.Key.Tenant, p.Key.Operation, s.n.text(p.Key), micros(p.Issue))
	answer, err := scanRecorded(row)
	if err != nil {
		return a, err
	}
	if answer.State == idempo.StateIssued && before.State == "" {
		err := s.put(ctx, tx, p.Key, `owner = $4, surface = $5, trace = $6, guard = $7, on_crash = $8 where owner like 'sql %'`,
			p.Owner, p.Surface, nullable(p.Trace), string(p.Guard), string(p.OnCrash))
		if err != nil {
			return a, err
		}
	}
	r, err := s.read(ctx, p.Key, p.Now, answer)
	if err != nil || r.State == "" {
		return idempo.Acquired{Verdict: idempo.VerdictInProgress, Record: idempo.Record{Key: p.Key, State: answer.State}, RetryAfter: time.Second}, err
	}
	if r.State == idempo.StateIssued {
		return idempo.Acquired{Verdict: idempo.VerdictRun, Record: r}, nil
	}
	a, _, err = p.Judge(r, true, r.Now) // nothing was written: only the verdict's word is wanted
	return a, err
}

// Lookup implements idempo.Store by lookup, whose answer must be what is in the row.
func (s *plainSQL) Lookup(ctx context.Context, p idempo.LookupParams) (r idempo.Record, err error) {
	err = s.in(ctx, "lookup", p.Now, func(ctx context.Context, tx *sql.Tx) error {
		answer, err := scanRecorded(tx.QueryRowContext(ctx, s.sql(recorded+`IDEMPO.lookup(tenant_id => $1, operation => $2, idempotency_key => $3)`),
			p.Key.Tenant, p.Key.Operation, s.n.text(p.Key)))
		if err != nil {
			return err
		}
		r, err = s.goShared.Lookup(ctx, idempo.LookupParams{Key: p.Key, WithoutBody: p.WithoutBody, Now: p.Now})
		if err == nil && !p.Now.IsZero() {
			err = unlikeRecorded(answer, r)
		}
		return err
	})
	return r, err
}

// read returns the row of key, which must say what a function answered.
func (s *plainSQL) read(ctx context.Context, key idempo.Key, now time.Time, answer idempo.Record) (idempo.Record, error) {
	r, err := s.goShared.Lookup(ctx, idempo.LookupParams{Key: key, Now: now})
	if err == nil && r.State != "" {
		err = unlikeRecorded(answer, r)
	}
	return r, err
}

const recorded = `select coalesce(state, ''), coalesce(attempt, 0), created_at, changed_at, claimed_at, started_at, lease_until, completed_at, expires_at, gone_at from `

func scanRecorded(row *sql.Row) (r idempo.Record, err error) {
	var at [8]sql.NullTime
	err = row.Scan(&r.State, &r.Attempt, &at[0], &at[1], &at[2], &at[3], &at[4], &at[5], &at[6], &at[7])
	for i, to := range []*time.Time{&r.CreatedAt, &r.ChangedAt, &r.ClaimedAt, &r.StartedAt, &r.LeaseUntil, &r.CompletedAt, &r.ExpiresAt, &r.GoneAt} {
		if at[i].Valid {
			*to = at[i].Time.UTC()
		}
	}
	return r, err
}

// unlikeRecorded says where a function's answer and the row differ.
func unlikeRecorded(a, r idempo.Record) error {
	one := func(r idempo.Record) string {
		return fmt.Sprint(r.State, r.Attempt, r.CreatedAt, r.ChangedAt, r.ClaimedAt, r.StartedAt, r.LeaseUntil, r.CompletedAt, r.ExpiresAt, r.GoneAt)
	}
	if r.State == "" {
		r = idempo.Record{}
	}
	if one(a) != one(r) {
		return fmt.Errorf("the function answers %s, the row says %s", one(a), one(r))
	}
	return nil
}

// Joined implements idempo.Joiner.
func (s *plainSQL) Joined(ctx context.Context) (tx, own bool, err error) {
	t, _ := ctx.Value(plainKey{}).(*plainTx)
	return t != nil, t != nil && t.own, nil
}

// join returns a context that carries tx, for the functions, the Go store and the effect.
func (s *plainSQL) join(ctx context.Context, t *plainTx) context.Context {
	return context.WithValue(postgres.WithTx(ctx, t.tx), plainKey{}, t)
}

// InTx implements idempo.Transactor as a careful caller of the functions would.
func (s *plainSQL) InTx(ctx context.Context, fn func(context.Context) error) error {
	if ctx.Value(plainKey{}) != nil {
		return &idempo.Error{Op: "begin", Code: "misuse"}
	}
	tx, err := s.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return &idempo.Error{Op: "begin", Code: "unavailable", Err: err}
	}
	t := &plainTx{tx: tx, own: true}
	defer func() { t.over = true; _ = tx.Rollback() }()
	if err := fn(s.join(ctx, t)); err != nil {
		if postgres.Conflict(err) {
			return &idempo.Error{Op: "commit", Code: "tx_conflict", Err: err}
		}
		return err
	}
	t.over = true
	switch {
	case t.broken != nil:
		return t.broken
	case t.failed != nil:
		_ = tx.Rollback()
		for _, keep := range t.failed {
			if err := keep(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		return nil
	}
	err = tx.Commit()
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return &idempo.Error{Op: "commit", Code: "tx_ended"}
	case err != nil && postgres.Conflict(err):
		return &idempo.Error{Op: "commit", Code: "tx_conflict", Err: err}
	case err != nil:
		return &idempo.Error{Op: "commit", Code: "tx_aborted", Err: err}
	}
	return nil
}

// jsonHeaders is what a caller sends as response_headers.
func jsonHeaders(h [][2]string) any {
	if len(h) == 0 {
		return nil
	}
	text := func(s string) any {
		if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
			return s
		}
		return map[string]string{"b64": base64.StdEncoding.EncodeToString([]byte(s))}
	}
	var pairs [][2]any
	for _, p := range h {
		pairs = append(pairs, [2]any{text(p[0]), text(p[1])})
	}
	b, _ := json.Marshal(pairs)
	return string(b)
}

// sqlHeaders reads what claim returns.
func sqlHeaders(b []byte) (h [][2]string, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	var pairs [][2]any
	if err := json.Unmarshal(b, &pairs); err != nil {
		return nil, err
	}
	for _, p := range pairs {
		var two [2]string
		for i, v := range p {
			if o, ok := v.(map[string]any); ok {
				raw, err := base64.StdEncoding.DecodeString(o["b64"].(string))
				if err != nil {
					return nil, err
				}
				two[i] = string(raw)
			} else {
				two[i] = v.(string)
			}
		}
		h = append(h, two)
	}
	return h, nil
}

func referText(rs []idempo.Resource) []byte {
	var h [][2]string
	for _, r := range rs {
		h = append(h, [2]string{r.Type, r.ID})
	}
	if h == nil {
		return nil
	}
	return []byte(jsonHeaders(h).(string))
}

func sqlText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
