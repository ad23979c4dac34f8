package storecheck

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"
)

// over makes n records whose retention ended long ago.
func over(t *testing.T, s idempo.Store, name string, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			p := leased(fmt.Sprint(name, i))
			p.Now = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
			a, err := s.Acquire(t.Context(), p)
			if err != nil {
				t.Error(err)
				return
			}
			c := completing(p, a.Record.Attempt, idempo.Result{Body: []byte("x")})
			c.Now, c.Tombstone = p.Now, idempo.Forever
			if _, err := s.Complete(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestSQLiteSweep(t *testing.T) {
	t.Parallel()
	sweep := func(t *testing.T, s *sqlite.Store, batch, want int) {
		t.Helper()
		if n, err := s.Sweep(t.Context(), batch); err != nil || n != want {
			t.Errorf("swept %d, %v, want %d", n, err, want)
		}
	}
	t.Run("[stores/T7] one process sweeps; a killed one is replaced when its lease is over", func(t *testing.T) {
		t.Parallel()
		a, file := sqliteStore(t, sqlite.Options{})
		b := sqliteOpen(t, file, sqlite.Options{})
		over(t, a, "x", 5)
		sweep(t, a, 2, 2)
		sweep(t, b, 10, 0)
		raw := sqliteRaw(t, file)
		if _, err := raw.ExecContext(t.Context(), "UPDATE idempo_meta SET value = substr(value, 1, instr(value, ' ')) || 1 WHERE name = 'sweep'"); err != nil {
			t.Fatal(err)
		}
		sweep(t, b, 10, 3)
		sweep(t, a, 10, 0)
	})
	t.Run("[stores/T7, CT28] a backlog drains while claims go on", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		over(t, s, "x", 1500)
		done := make(chan int)
		go func() {
			all := 0
			for {
				n, err := s.Sweep(t.Context(), 1000)
				if err != nil {
					t.Error(err)
				}
				if all += n; n < 1000 {
					done <- all
					return
				}
			}
		}()
		claims := 0
		for swept := 0; swept == 0; claims++ {
			run(t, s, t.Context(), leased(fmt.Sprint("during ", claims)))
			select {
			case swept = <-done:
				if swept != 1500 {
					t.Errorf("swept %d", swept)
				}
			default:
			}
		}
		var tombs, live int
		raw := sqliteRaw(t, file)
		_ = raw.QueryRowContext(t.Context(), "SELECT count(*) FROM idempo_records WHERE state = 'expired' AND response_body IS NULL").Scan(&tombs)
		_ = raw.QueryRowContext(t.Context(), "SELECT count(*) FROM idempo_records WHERE state = 'pending'").Scan(&live)
		if tombs != 1500 || live != claims {
			t.Errorf("%d tombstones, %d of %d live claims", tombs, live, claims)
		}
	})
	t.Run("what looks for due records reads no other: each statement is held to its index", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		over(t, s, "x", 3)
		raw := sqliteRaw(t, file)
		// The statements of sweeps and takers name their index; without it they fail instead of reading everything.
		for _, index := range []string{"records_end", "records_gone", "records_lease"} {
			var sql string
			if err := raw.QueryRowContext(t.Context(), "SELECT sql FROM sqlite_master WHERE name = ?", "idempo_"+index).Scan(&sql); err != nil {
				t.Fatal(index, err)
			}
			if _, err := raw.ExecContext(t.Context(), "DROP INDEX idempo_"+index); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Sweep(t.Context(), 1); err == nil {
				t.Errorf("without %s it swept %d", index, n)
			}
			if _, err := raw.ExecContext(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		sweep(t, s, 10, 3)
	})
}
