package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"
)

// claimsSQLite compares leased claims, which share commits, with one commit each by hand.
func claimsSQLite(ctx context.Context, s settings) ([]result, error) {
	dir, err := os.MkdirTemp("", "idempo-bench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite", filepath.Join(dir, "claims.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	twin, err := sqlite.Open(ctx, "sqlite", filepath.Join(dir, "hand.db"), sqlite.Options{}) // the same tables, for like rows
	if err != nil {
		return nil, err
	}
	if err := twin.Close(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "hand.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	insert, err := db.PrepareContext(ctx, `INSERT INTO idempo_records (tenant_id, operation, idempotency_key, request_hash, request_recipe, state, guard, on_crash, surface, failing,
		attempt, generation, token, owner, claimed_at, started_at, lease_until, format, created_at, changed_at)
		VALUES (?, ?, ?, ?, 'bench', 'pending', 'leased', 'hold', 'http', 0, 1, 1, ?, 'bench', ?, ?, ?, 1, ?, ?) ON CONFLICT (tenant_id, operation, idempotency_key) DO NOTHING`)
	if err != nil {
		return nil, err
	}
	hand := contender{"one commit each", func(ctx context.Context, n int64) error {
		key, now := digestOf(n), time.Now().UnixMicro()
		_, err := insert.ExecContext(ctx, []byte("acct_7"), []byte("send-parcel"), key, key, key[:16], now, now, now+60_000_000, now, now)
		return err
	}}
	claim := contender{"claims", func(ctx context.Context, n int64) error {
		key := digestOf(n)
		a, err := store.Acquire(ctx, idempo.AcquireParams{Key: idempo.Key{Tenant: "acct_7", Operation: "send-parcel", ID: string(key)}, Hash: key, Recipe: "bench",
			Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashHold, Token: idempo.Token(key[:16]), Lease: time.Minute, Owner: "bench", Surface: "http"})
		if err == nil && a.Verdict != idempo.VerdictRun {
			err = errLost
		}
		return err
	}}
	var out []result
	for _, c := range []struct {
		clients int
		bar     float64
		text    string
	}{{64, 6, "≥ 6"}, {1, 0.9, "≥ 0.90"}} {
		rates, err := compare(ctx, s, c.clients, hand, claim)
		if err != nil {
			return nil, err
		}
		r := ratio(rates[1], rates[0])
		what := "leased claims on SQLite FULL ÷ the like row by hand, one commit each, 64 at once"
		if c.clients == 1 {
			what = "leased claims on SQLite FULL ÷ the like row by hand, one commit each, 1 client"
		}
		out = append(out, result{"E37 P52", what, r, "", c.text, r >= c.bar, note([]string{"by hand", "claims"}, rates)})
	}
	return out, nil
}
