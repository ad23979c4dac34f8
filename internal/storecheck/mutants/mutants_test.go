package mutants

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A mutant is a rule broken: old is replaced by text in file.
type mutant struct {
	rule      string
	file      string
	old, text string
	killer    killer
}

// killer is the test that must notice.
type killer struct{ pkg, run string }

func mutants() []mutant {
	kit := killer{"./storetest", "^TestMemstore$"}
	return []mutant{
		{"no fence on completion", "judge.go",
			"own := found && live && r.Token.Equal(p.Token) && !p.Token.IsZero()\n\tswitch {\n\tcase own && r.State == StateCompleted && eff",
			"own := found && live\n\tswitch {\n\tcase own && r.State == StateCompleted && eff", kit},
		{"no fence on completion, in SQL", "postgres/queries/complete.sql",
			"\n    and r.token = $token and r.attempt = $attempt and r.state = 'pending'", "\n    and ($token is null or $token is not null) and $attempt > 0 and r.state = 'pending'",
			killer{"./internal/storecheck", "^TestPostgresKit$/stores/pgx$/stores/^L4"}},
		{"a take-over reads before it locks, and does not ask again", "postgres/queries/swap.sql",
			"r.attempt = $old_attempt and r.state = $old_state and r.token is not distinct from $old_token\n        and r.changed_at = $old_changed_at",
			"r.attempt >= $old_attempt and r.state = $old_state and ($old_token is null or $old_token is not null)\n        and ($old_changed_at is not null)",
			killer{"./internal/storecheck", "^TestPostgresKit$/stores/pgx$/stores/^L5"}},
		{"leases by the clock of the application", "postgres/acquire.go",
			"	once := s.claimLeased\n", "	if p.Now.IsZero() {\n\t\tp.Now = time.Now()\n\t}\n\tonce := s.claimLeased\n",
			killer{"./internal/storecheck", "^TestPostgresClocks$/^pgx$"}},
		{"a conflict is ignored instead of refused", "postgres/queries/finish.sql",
			"do update\n    set attempt = cast('idempo: another attempt has the key' || r.attempt::text as bigint)", "do nothing",
			killer{"./internal/storecheck", "^TestPostgresWithoutLocks$"}},
		{"a COMMIT without an answer is taken for failed", "transaction.go",
			"	case unknown(err):\n\t\tt.open, t.until = err, time.Now().Add(t.e.cfg.CompleteBudget)\n\t\treturn again\n", "",
			killer{".", "^TestCommitWithoutAnAnswer$"}},
		{"\"conn closed\" is taken for not sent", "contrib/pgx/port.go",
			"(!pgconn.SafeToRetry(err) || alive && c.IsClosed())", "!pgconn.SafeToRetry(err)",
			killer{"./internal/storecheck", "^TestPostgresCommitInDoubt$/^pgx_exec$"}},
		{"a COMMIT that the server answers with ROLLBACK is a success", "contrib/pgx/port.go",
			"		t.rollback(end)\n\t\treturn &postgres.TxError{Code: \"tx_aborted\", Err: t.first()}\n\t}\n\twarned(",
			"		t.rollback(end)\n\t\treturn nil\n\t}\n\twarned(",
			killer{"./internal/storecheck", "^TestPostgresKit$/stores/pgx$/stores/^E12"}},
		{"a claim sent again is refused by its own first try", "begin.go",
			"again := busy || open && err != nil //", "again := open && err != nil //", killer{".", "^TestLateClaims$"}},
		{"a claim without an answer is forgotten when a later try fails outright", "begin.go",
			"again := busy || open && err != nil //", "again := busy || unknown(err) //", killer{".", "^TestLateClaims$"}},
		{"a renewal after the lease's end is accepted", "judge.go",
			"|| p.Token.IsZero() || r.Lapsed(now) {\n\t\treturn Record{}, lost(\"renew\"", "|| p.Token.IsZero() {\n\t\treturn Record{}, lost(\"renew\"", kit},
		{"a crashed owner on hold is run again", "judge.go", "	case policy == OnCrashHold:\n", "	case false && policy == OnCrashHold:\n", kit},
		{"another request under the same key is answered", "judge.go", "	if !same {\n\t\teff.Result, eff.Snapshot", "	if false {\n\t\teff.Result, eff.Snapshot", kit},
		{"a lease counts from the answer to its claim", "claim.go", "		cl.keep(c.sent) //", "		cl.keep(time.Now()) //", killer{".", "^TestLateClaims$"}},
	}
}

const root = "../../.."

func TestMutants(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("with -short no other builds are made")
	}
	all := mutants()
	t.Run("[stores/CT46] fewer than six mutants prove nothing", func(t *testing.T) {
		if len(all) < 6 {
			t.Errorf("%d", len(all))
		}
	})
	room := make(chan struct{}, 2) // builds at once
	sound := map[killer]func() (string, error){}
	for _, m := range all {
		if sound[m.killer] == nil {
			sound[m.killer] = sync.OnceValues(func() (string, error) { return m.killer.test(t, "") })
		}
		passes := sound[m.killer]
		t.Run("[stores/CT41] killed: "+m.rule, func(t *testing.T) {
			t.Parallel()
			room <- struct{}{}
			defer func() { <-room }()
			switch out, err := passes(); {
			case err != nil:
				t.Fatalf("the sound code fails too: %v\n%s", err, out)
			case strings.Contains(out, "no PostgreSQL: "):
				t.Skip("the test that notices needs a PostgreSQL: set IDEMPO_TEST_POSTGRES")
			case strings.Contains(out, "no tests to run"):
				t.Fatalf("there is no test %s", m.killer.run)
			}
			out, err := m.killer.test(t, m.overlay(t))
			switch {
			case err == nil:
				t.Errorf("%s %s passes with it", m.killer.pkg, m.killer.run)
			case !strings.Contains(out, "--- FAIL: "):
				t.Errorf("no test failed, something else did: %v\n%s", err, out)
			}
		})
	}
}

// overlay writes the mutant and what the go command has to know of it.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has the text to be broken %d times: the mutant is out of date:\n%s", m.file, n, m.old)
	}
	dir := t.TempDir()
	patched := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(patched, []byte(strings.Replace(string(text), m.old, m.text, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {file: patched}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, plan, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// test runs the killer; overlay is a file, or "".
func (k killer) test(t *testing.T, overlay string) (string, error) {
	t.Helper()
	args := []string{"test", "-v", "-count=1", "-failfast", "-timeout=150s", "-run", k.run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, k.pkg)...)
	cmd.Dir, cmd.WaitDelay = root, 10*time.Second
	cmd.Env = append(os.Environ(), "CRASH_TABLE=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
