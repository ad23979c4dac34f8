package storecheck

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"

	_ "modernc.org/sqlite"
)

// sqliteStore opens a store in a folder of its own and returns it with its file.
func sqliteStore(t testing.TB, o sqlite.Options) (*sqlite.Store, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a b%?#.db") // names must not be read as parameters
	return sqliteOpen(t, file, o), file
}

func sqliteOpen(t testing.TB, file string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), "sqlite", file, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error("close:", err)
		}
	})
	return s
}

// sqliteRaw opens the file of a store beside it, with the driver's defaults.
func sqliteRaw(t testing.TB, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+escape(file)+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func escape(file string) string {
	var b []byte
	for i := range len(file) {
		switch c := file[i]; c {
		case '%', '?', '#', ' ':
			const hex = "0123456789ABCDEF"
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func leased(id string) idempo.AcquireParams {
	h := sha256.Sum256([]byte(id))
	return idempo.AcquireParams{
		Key: idempo.Key{Tenant: "t", Operation: "op", ID: string(h[:])}, Hash: h[:], Recipe: "r1", Guard: idempo.GuardLeased,
		OnCrash: idempo.OnCrashHold, Token: newToken(id), Lease: 30 * time.Second, Surface: "task", Owner: "me", DerivedKey: "d-" + id,
	}
}

func atomically(id string) idempo.AcquireParams {
	p := leased(id)
	p.Guard = idempo.GuardAtomic
	return p
}

func newToken(s string) (t idempo.Token) {
	h := sha256.Sum256([]byte("token " + s))
	copy(t[:], h[:])
	return t
}

func completing(p idempo.AcquireParams, attempt int64, r idempo.Result) idempo.CompleteParams {
	return idempo.CompleteParams{
		Key: p.Key, Token: p.Token, Won: p, Attempt: attempt, Result: r, Size: int64(len(r.Body)), Kept: true,
		Retention: time.Hour, Tombstone: 10 * time.Hour,
	}
}

func run(t testing.TB, s idempo.Store, ctx context.Context, p idempo.AcquireParams) idempo.Acquired {
	t.Helper()
	a, err := s.Acquire(ctx, p)
	if err != nil || a.Verdict != idempo.VerdictRun {
		t.Fatalf("acquire: %v %v", a.Verdict, err)
	}
	return a
}
