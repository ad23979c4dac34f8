package storecheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"
)

const sqliteChildFile, sqliteChildRound = "STORECHECK_SQLITE_FILE", "STORECHECK_SQLITE_ROUND"

// TestSQLiteVictim is the process that TestSQLiteKilled kills. By itself it does nothing.
func TestSQLiteVictim(t *testing.T) {
	file, round := os.Getenv(sqliteChildFile), os.Getenv(sqliteChildRound)
	if file == "" {
		return
	}
	s := sqliteOpen(t, file, sqlite.Options{})
	for worker := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s/%d/%d", round, worker, i)
				if worker%2 == 0 {
					_, err := do(context.Background(), s, atomically(id), idempo.Result{Body: []byte(id)}, func(ctx context.Context) error {
						_, err := sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO made VALUES (?)", id)
						return err
					})
					if err != nil {
						fmt.Println("error", err)
					}
					fmt.Println("atomic", id)
					continue
				}
				p := leased(id)
				a, err := s.Acquire(context.Background(), p)
				if err == nil {
					fmt.Println("claimed", id)
					_, err = s.Complete(context.Background(), completing(p, a.Record.Attempt, idempo.Result{Body: []byte(id)}))
				}
				if err != nil {
					fmt.Println("error", err)
				}
				fmt.Println("leased", id)
			}
		}()
	}
	select {}
}

func TestSQLiteKilled(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ5] killed anywhere: the next writer goes on at once, quick_check is clean, nothing acknowledged is lost", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "x.db")
		_ = sqliteOpen(t, file, sqlite.Options{}).Close()
		raw := sqliteRaw(t, file)
		if _, err := raw.ExecContext(t.Context(), "CREATE TABLE made (id TEXT NOT NULL) STRICT"); err != nil {
			t.Fatal(err)
		}
		acked := map[string]string{}
		for round := range 12 {
			for _, line := range kill(t, file, round, 1+rand.IntN(60)) {
				word, id, _ := strings.Cut(line, " ")
				if word == "error" {
					t.Errorf("the victim saw %s", id)
				}
				acked[id] = word // claimed, then leased
			}
			var check string
			if err := raw.QueryRowContext(t.Context(), "PRAGMA quick_check").Scan(&check); err != nil || check != "ok" {
				t.Fatal(check, err)
			}
			s := sqliteOpen(t, file, sqlite.Options{})
			run(t, s, t.Context(), leased(fmt.Sprint("next writer ", round)))
			for id, word := range acked {
				p := leased(id)
				if word == "atomic" {
					p = atomically(id)
				}
				r, err := s.Lookup(t.Context(), idempo.LookupParams{Key: p.Key})
				switch {
				case err != nil:
					t.Fatal(err)
				case word == "claimed" && (r.State == idempo.StatePending || r.State == idempo.StateCompleted):
				case r.State != idempo.StateCompleted || string(r.Result.Body) != id:
					t.Errorf("%s %s was acknowledged and is %q", word, id, r.State)
				}
			}
			var effects, twice, records int
			err := errors.Join(
				raw.QueryRowContext(t.Context(), "SELECT count(*), count(*) - count(DISTINCT id) FROM made").Scan(&effects, &twice),
				raw.QueryRowContext(t.Context(), "SELECT count(*) FROM idempo_records WHERE guard = 'atomic' AND state = 'completed'").Scan(&records))
			if err != nil || effects != records || twice != 0 {
				t.Errorf("%d effects, %d twice, %d records, %v", effects, twice, records, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if len(acked) < 12 {
			t.Errorf("void: %d acknowledged calls", len(acked))
		}
	})
}

// kill starts a process that works on file, kills it with SIGKILL once it has said so many lines, and returns all of
// its whole lines.
func kill(t *testing.T, file string, round, lines int) (said []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSQLiteVictim$")
	cmd.Env = append(os.Environ(), sqliteChildFile+"="+file, sqliteChildRound+"="+fmt.Sprint(round))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break // what was cut off was not acknowledged
		}
		said = append(said, strings.TrimSpace(line))
		if len(said) == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the victim ended by itself")
	}
	return said
}
