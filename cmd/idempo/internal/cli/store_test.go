package cli

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
)

// seeded makes an SQLite store ./idempo.db with a record in each state.
func (s *shell) seeded() {
	s.t.Helper()
	ctx := context.Background()
	store, err := database.Open(ctx, config.Store{SQLite: filepath.Join(s.dir, "idempo.db"), AutoMigrate: true, Strict: true, BusyTimeout: time.Second}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer store.Close()
	seed := func(id, operation string, age time.Duration, onCrash idempo.OnCrash) idempo.AcquireParams {
		h := sha256.Sum256([]byte(id))
		p := idempo.AcquireParams{Key: idempo.Key{Tenant: "acct_7", Operation: operation, ID: string(h[:])}, Hash: h[:], Recipe: "http1;k=d1;x", Guard: idempo.GuardLeased,
			OnCrash: onCrash, Lease: time.Hour, Surface: "http", Owner: "box/1 v1", Now: time.Now().Add(-age)}
		copy(p.Token[:], h[:])
		if a, err := store.Acquire(ctx, p); err != nil || a.Verdict != idempo.VerdictRun {
			s.t.Fatal(a.Verdict, err)
		}
		return p
	}
	finish := func(p idempo.AcquireParams, age, retention time.Duration, r idempo.Result) {
		if _, err := store.Complete(ctx, idempo.CompleteParams{Key: p.Key, Token: p.Token, Won: p, Attempt: 1, Result: r, Size: int64(len(r.Body)), Kept: true,
			Retention: retention, Tombstone: 1000 * time.Hour, Now: time.Now().Add(-age)}); err != nil {
			s.t.Fatal(err)
		}
	}
	finish(seed("done", "pay", 10*time.Minute+30*time.Second, "hold"), 5*time.Minute+30*time.Second, 24*time.Hour,
		idempo.Result{Status: 201, Body: []byte("{\"n\":1}\n"), Resource: idempo.Resource{Type: "charge", ID: "ch_\x1b[2J91"}})
	finish(seed("declined", "pay", 3*time.Hour+time.Minute, "hold"), 3*time.Hour, 24*time.Hour, idempo.Result{Status: 402, Failing: true, Body: []byte("no")})
	finish(seed("old", "pay", 100*time.Hour, "hold"), 99*time.Hour, time.Hour, idempo.Result{Status: 200})
	seed("running", "ship", 20*time.Minute+30*time.Second, "hold")
	seed("lost", "ship", 2*time.Hour+30*time.Minute, "hold")
	p := seed("refused", "ship", 40*time.Minute, "probe")
	if _, err := store.Release(ctx, idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateFailed, Note: "line 1\nline 2", Retention: 24 * time.Hour, Now: time.Now().Add(-30 * time.Minute)}); err != nil {
		s.t.Fatal(err)
	}
}

func ref(id string) string {
	h := sha256.Sum256([]byte(id))
	return idempo.Key{ID: string(h[:])}.Ref()
}

var stamp = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

func timeless(s string) string { return stamp.ReplaceAllString(s, "TIME") }

func TestKeysListGarbled(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC27] a row that cannot be read is listed and shown as unreadable", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, "idempo.db")+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		h := sha256.Sum256([]byte("declined"))
		if res, err := db.ExecContext(t.Context(), "UPDATE idempo_records SET response_headers = CAST('garbage' AS BLOB) WHERE idempotency_key = ?", h[:]); err != nil {
			t.Fatal(err)
		} else if n, err := res.RowsAffected(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r := s.run("keys", "list", "--store", "idempo.db")
		if r.code != 0 || strings.Count(r.out, "\n") != 7 || !strings.Contains(r.out, ref("declined")+"  unreadable") || !strings.Contains(r.out, ref("done")+"  completed") {
			t.Errorf("%d\n%s%s", r.code, r.out, r.err)
		}
		if r := s.run("keys", "list", "--store", "idempo.db", "--json"); r.code != 0 || !strings.Contains(r.out, `"state":"unreadable"`) {
			t.Errorf("%d\n%s%s", r.code, r.out, r.err)
		}
		if r := s.run("keys", "show", ref("declined"), "--store", "idempo.db"); r.code != 0 || !strings.Contains(r.out, "state        unreadable") || strings.Contains(r.out, "guard") {
			t.Errorf("%d\n%s%s", r.code, r.out, r.err)
		}
	})
}

func TestKeysList(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.seeded()
	list := func(t *testing.T, args ...string) (refs []string) {
		t.Helper()
		r := s.run(append([]string{"keys", "list", "--store", "idempo.db", "--json"}, args...)...)
		if r.code != 0 || r.err != "" {
			t.Fatalf("%v: exit %d, %s", args, r.code, r.err)
		}
		for line := range strings.Lines(r.out) {
			var row struct {
				Schema int
				KeyRef string `json:"key_ref"`
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil || row.Schema != 1 {
				t.Fatal(err, line)
			}
			refs = append(refs, row.KeyRef)
		}
		return refs
	}
	t.Run("[operations/OP18] the table", func(t *testing.T) {
		r := s.run("keys", "list", "--store", "idempo.db")
		if r.code != 0 || r.err != "" {
			t.Fatal(r)
		}
		golden(t, "keys-list", r.out)
		for line := range strings.SplitSeq(r.out, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("over 80 columns: %s", line)
			}
		}
	})
	t.Run("[operations/OP18] filters intersect", func(t *testing.T) {
		want := func(ids []string, args ...string) {
			t.Helper()
			got := map[string]bool{}
			for _, r := range list(t, args...) {
				got[r] = true
			}
			for _, id := range ids {
				if !got[ref(id)] {
					t.Errorf("%v: no %s", args, id)
				}
			}
			if len(got) != len(ids) {
				t.Errorf("%v: %d keys, want %d", args, len(got), len(ids))
			}
		}
		want([]string{"done", "declined", "old", "running", "lost", "refused"})
		want([]string{"lost"}, "--state", "in_doubt")
		want([]string{"running"}, "--state", "pending")
		want([]string{"old"}, "--state", "expired")
		want([]string{"refused"}, "--state", "failed")
		want([]string{"running", "lost", "refused"}, "--operation", "ship")
		want(nil, "--operation", "ship", "--tenant", "acct_8")
		want([]string{"declined"}, "--outcome", "completed_failing")
		want([]string{"done", "old"}, "--outcome", "completed")
		want([]string{"running", "done", "refused"}, "--newer-than", "1h")
		want([]string{"lost"}, "--older-than", "1h", "--operation", "ship", "--surface", "http")
		want([]string{"done"}, "--resource", "charge:ch_\x1b[2J91")
		want(nil, "--stuck")
	})
	t.Run("[operations/OP18] --limit ends with the way on", func(t *testing.T) {
		r := s.run("keys", "list", "--store", "idempo.db", "--json", "--limit", "4")
		cursor := strings.TrimSpace(strings.TrimPrefix(r.err, "more: --after "))
		if r.code != 0 || strings.Count(r.out, "\n") != 4 || cursor == "" {
			t.Fatalf("%+v", r)
		}
		if rest := list(t, "--after", cursor); len(rest) != 2 {
			t.Errorf("%d after the first 4 of 6", len(rest))
		}
	})
	t.Run("nothing matches", func(t *testing.T) {
		s.want(0, "", "no keys match\n", "keys", "list", "--store", "idempo.db", "--tenant", "nobody")
		s.want(0, "", "", "keys", "list", "--store", "idempo.db", "--tenant", "nobody", "--json")
	})
	t.Run("[operations/OP2] wrong words get the nearest valid one, and no store is opened", func(t *testing.T) {
		bad := func(text string, args ...string) {
			t.Helper()
			s.want(125, "", "idempo: "+text+"\n", append([]string{"keys", "list", "--store", "nowhere/x.db"}, args...)...)
		}
		bad("--state: unknown value \"indoubt\"\n  did you mean in_doubt?", "--state", "indoubt")
		bad("--state: unknown value \"zzz\"\n  one of: issued pending completed failed in_doubt expired", "--state", "zzz")
		bad("--surface: unknown value \"htp\"\n  did you mean http?", "--surface", "htp")
		bad("--outcome: unknown value \"complete\"\n  did you mean completed?", "--outcome", "complete")
		bad("--older-than: not a duration: write whole numbers with a unit (ms s m h d w), as in 30s or 1h30m", "--older-than", "5")
		bad("--resource: write TYPE:ID, as in charge:ch_91", "--resource", "charge")
		bad("--stuck: only pending keys can be stuck, and --state is failed", "--stuck", "--state", "failed")
		bad("--after: not a cursor of this list", "--after", "x")
		if _, err := os.Stat(filepath.Join(s.dir, "nowhere")); err == nil {
			t.Error("a store was made")
		}
	})
}

func TestKeysShow(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.seeded()
	show := func(args ...string) result {
		return s.run(append([]string{"keys", "show", "--store", "idempo.db"}, args...)...)
	}
	for _, id := range []string{"done", "declined", "old", "running", "lost", "refused"} {
		t.Run("[operations/OP19, OP4] "+id, func(t *testing.T) {
			r := show(ref(id))
			if r.code != 0 || r.err != "" {
				t.Fatal(r)
			}
			if strings.Contains(r.out, "\x1b") {
				t.Error("stored text moves the cursor")
			}
			golden(t, "keys-show-"+id, timeless(r.out))
			j := show(ref(id), "--json")
			var row struct {
				Schema   int
				KeyRef   string `json:"key_ref"`
				Attempts []struct{ Attempt int }
			}
			if err := json.Unmarshal([]byte(j.out), &row); err != nil || row.Schema != 1 || row.KeyRef != ref(id) || len(row.Attempts) != 1 || strings.Count(j.out, "\n") != 1 {
				t.Errorf("%v %s", err, j.out)
			}
		})
	}
	t.Run("[operations/OP20] an unknown key", func(t *testing.T) {
		s.want(1, "", "idempo: no such key\n", "keys", "show", "--store", "idempo.db", ref("unknown"))
		r := show(ref("unknown"), "--json")
		if r.code != 1 || r.out != "" || !strings.Contains(r.err, `"code":"not_found","message":"no such key"`) {
			t.Error(r)
		}
	})
	t.Run("[operations/OP29] the body only with --body, byte for byte", func(t *testing.T) {
		s.want(0, "{\"n\":1}\n", "", "keys", "show", "--store", "idempo.db", ref("done"), "--body")
		s.want(1, "", "idempo: no answer is stored for this key\n", "keys", "show", "--store", "idempo.db", ref("old"), "--body")
		if strings.Contains(show(ref("done"), "--json").out+show(ref("done")).out, `"n":1`) {
			t.Error("the body is shown without --body")
		}
	})
	t.Run("[operations/OP16] local zone with offset in text, UTC in JSON", func(t *testing.T) {
		z := &shell{t: t, dir: s.dir, env: append([]string{"TZ=Asia/Tokyo"}, s.env...)}
		if r := z.run("keys", "show", "--store", "idempo.db", ref("done")); !strings.Contains(r.out, "+09:00") {
			t.Error(r.out)
		}
		r := z.run("keys", "show", "--store", "idempo.db", ref("done"), "--json")
		if strings.Contains(r.out, "+09:00") || !strings.Contains(r.out, `Z"`) {
			t.Error(r.out)
		}
	})
	t.Run("not a reference, or not enough to name a key", func(t *testing.T) {
		for want, args := range map[string][]string{
			`"k_x" is not a key reference: k_ and 26 characters`:             {"k_x"},
			"name the key: its reference, or --tenant, --operation and --id": {"--tenant", "a"},
			"give a reference, or --tenant --operation --id, not both":       {ref("done"), "--id", "x"},
		} {
			if r := show(args...); r.code != 125 || !strings.HasPrefix(r.err, "idempo: "+want) {
				t.Errorf("%v: %+v", args, r)
			}
		}
	})
	t.Run("a store that is not there, and one of another schema", func(t *testing.T) {
		s.want(78, "", "idempo: the schema of sqlite "+filepath.Join(s.dir, "none.db")+" has version 0, this binary needs "+fmt.Sprint(database.SQLiteVersion())+"\n  idempo migrate up\n", "keys", "list", "--store", "none.db")
		r := s.run("keys", "list", "--store", "postgres://u:canary@127.0.0.1:1/d")
		if r.code != 69 || !strings.Contains(r.err, "store postgres://u:***@127.0.0.1:1/d: cannot connect") || strings.Contains(r.err, "canary") {
			t.Errorf("%+v", r)
		}
	})
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	t.Run("[stores/MG2] status, up, down, print", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		file := filepath.Join(s.dir, "m.db")
		known := database.SQLiteVersion()
		s.want(1, fmt.Sprintf("store    sqlite %s\nschema   version 0, this binary knows %d\npending  all\n", file, known), "", "migrate", "status", "--store", "m.db")
		if _, err := os.Stat(file); err == nil {
			t.Error("status made the file")
		}
		s.want(0, fmt.Sprintf("schema version %d, was 0\n", known), "", "migrate", "up", "--store", "m.db")
		s.want(0, fmt.Sprintf("schema version %d, nothing to do\n", known), "", "migrate", "up", "--store", "m.db")
		r := s.run("migrate", "status", "--store", "m.db")
		if r.code != 0 || !strings.HasPrefix(timeless(r.out), fmt.Sprintf("store    sqlite %s\nschema   version %d, this binary knows %d\napplied  0001_", file, known, known)) {
			t.Errorf("%+v", r)
		}
		r = s.run("migrate", "status", "--store", "m.db", "--json")
		if r.code != 0 || !strings.Contains(r.out, fmt.Sprintf(`"version":%d,"known":%d`, known, known)) || !strings.Contains(r.out, `"pending":[]`) {
			t.Errorf("%+v", r)
		}
		s.want(125, "", "idempo: this needs a confirmation, and there is no terminal to ask on; nothing was done\n  add --yes\n", "migrate", "down", "--store", "m.db")
		for v := known; v > 0; v-- {
			s.want(0, fmt.Sprintf("schema version %d, was %d\n", v-1, v), "", "migrate", "down", "--store", "m.db", "--yes")
		}
		s.want(1, "", "idempo: no migration is applied; nothing was done\n", "migrate", "down", "--store", "m.db", "--yes")
	})
	t.Run("[operations/OP45] down refuses where data would be lost", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		for range database.SQLiteVersion() - 1 { // they hold no rows of their own
			s.run("migrate", "down", "--store", "idempo.db", "--yes")
		}
		r := s.run("migrate", "down", "--store", "idempo.db", "--yes")
		if r.code != 1 || !strings.Contains(r.err, "is not empty and its rows would be lost") {
			t.Errorf("%+v", r)
		}
		s.run("migrate", "up", "--store", "idempo.db")
		if n := strings.Count(s.run("keys", "list", "--store", "idempo.db", "--json").out, "\n"); n != 6 {
			t.Errorf("%d keys are left", n)
		}
	})
	t.Run("[stores/MG3] print is SQL and asks no database", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		a := s.run("migrate", "print", "--store", "postgres://127.0.0.1:1/d", "--grants", "app")
		if a.code != 0 || !strings.Contains(a.out, "create table") || !strings.Contains(a.out, `to "app"`) {
			t.Errorf("%+v", a)
		}
		b := s.run("migrate", "print", "--store", "x.db")
		if b.code != 0 || !strings.Contains(b.out, "CREATE TABLE") {
			t.Errorf("%+v", b)
		}
		if again := s.run("migrate", "print", "--store", "x.db"); again.out != b.out {
			t.Error("two prints differ")
		}
		if r := s.run("migrate", "print", "--store", "x.db", "--grants", "app"); r.code != 125 {
			t.Errorf("%+v", r)
		}
		if r := s.run("migrate", "print", "--store", "x.db", "--from", "7"); r.code != 125 {
			t.Errorf("%+v", r)
		}
	})
}

// serving runs serve until stop is called.
type serving struct {
	t       *testing.T
	out     buffer
	err     buffer
	signals chan os.Signal
	code    chan int
}

func (s *shell) serve(args ...string) *serving {
	s.t.Helper()
	v := &serving{t: s.t, signals: make(chan os.Signal, 2), code: make(chan int, 1)}
	env := append([]string{"IDEMPO_LISTEN=127.0.0.1:0", "IDEMPO_ADMIN_LISTEN=127.0.0.1:0"}, s.env...)
	go func() {
		v.code <- Run(Process{Args: append([]string{"serve"}, args...), Env: env, Dir: s.dir, In: strings.NewReader(""), Out: &v.out, Err: &v.err, Signals: v.signals, Version: "v1"})
	}()
	return v
}

// front waits for the banner and returns the gateway's address.
func (v *serving) front() string {
	v.t.Helper()
	for {
		text, more := v.err.next()
		if _, rest, ok := strings.Cut(text, "gateway   "); ok {
			if address, _, ok := strings.Cut(rest, "\n"); ok {
				return address
			}
		}
		select {
		case code := <-v.code:
			v.t.Fatalf("serve ended with %d: %s", code, v.err.String())
		case <-more:
		}
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP40, OP43, OP28] from one command to a replay, looked at while it serves, and an orderly end", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		var calls atomic.Int64
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "%d", calls.Add(1))
		}))
		defer up.Close()
		v := s.serve("--upstream", up.URL)
		front := v.front()
		for range 2 {
			r, err := http.NewRequest("POST", front+"/", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "order-81")
			resp, err := http.DefaultClient.Do(r)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			resp.Body.Close()
		}
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
		r := s.run("keys", "show", "--tenant", "default", "--operation", "gateway.upstream", "--id", "order-81") // beside the running server
		if r.code != 0 || !strings.Contains(r.out, "state        completed") {
			t.Errorf("%+v", r)
		}
		if r := s.run("keys", "show", "--tenant", "default", "--operation", "gateway.upstream", "--id", "order-82"); r.code != 1 {
			t.Errorf("%+v", r)
		}
		v.signals <- syscall.SIGTERM
		if code := <-v.code; code != 0 {
			t.Errorf("exit %d: %s", code, v.err.String())
		}
		if v.out.String() != "" || !strings.Contains(v.err.String(), "draining; a second signal ends at once") {
			t.Errorf("stdout %q, stderr %s", v.out.String(), v.err.String())
		}
	})
	t.Run("[operations/OP43] a second signal ends at once, exit 1", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		begun, hold := make(chan struct{}), make(chan struct{})
		up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(begun)
			<-hold
		}))
		defer up.Close()
		defer close(hold)
		v := s.serve("--upstream", up.URL)
		front := v.front()
		go func() {
			r, _ := http.NewRequest("POST", front+"/", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "k")
			if resp, err := http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
			}
		}()
		<-begun
		v.signals <- os.Interrupt
		v.signals <- os.Interrupt
		if code := <-v.code; code != 1 || !strings.Contains(v.err.String(), "idempo keys list --state in_doubt") {
			t.Errorf("exit %d: %s", code, v.err.String())
		}
	})
	t.Run("[operations/OP41, OP2] refusals and their codes", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		refused := func(code int, text string, args ...string) {
			t.Helper()
			v := s.serve(args...)
			if got := <-v.code; got != code || !strings.Contains(v.err.String(), text) {
				t.Errorf("%v: exit %d, want %d: %s", args, got, code, v.err.String())
			}
		}
		refused(125, "nothing to serve: give --upstream URL")
		refused(125, "flag --upstream: upstream: not an HTTP URL", "--upstream", "127.0.0.1:9000")
		refused(125, "unknown flag --upsteam\n  did you mean --upstream?", "--upsteam", "x")
		busy := httptest.NewServer(http.NotFoundHandler())
		defer busy.Close()
		refused(125, "is in use by another program\n  give another one: --listen", "--upstream", busy.URL, "--listen", strings.TrimPrefix(busy.URL, "http://"))
		refused(69, "store postgres://127.0.0.1:1/d: cannot connect", "--upstream", busy.URL, "--store", "postgres://127.0.0.1:1/d")
		s.file("idempo.yaml", "version: 1\nstore: {migrate: manual}\n")
		refused(78, fmt.Sprintf("has version 0, this binary needs %d\n  idempo migrate up", database.SQLiteVersion()), "--upstream", busy.URL)
	})
}

// shellSplit splits a line as a shell does, with double quotes only.
func shellSplit(line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

func TestExamplesRun(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand() {
		if strings.HasPrefix(c.CommandPath(), "idempo outbox") || c.CommandPath() == "idempo relay" {
			continue // TestOutboxExamples
		}
		for example := range strings.SplitSeq(c.Example, "\n") {
			t.Run("[operations/OP1] "+example, func(t *testing.T) {
				t.Parallel()
				s := newShell(t)
				s.seeded()
				s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\nsecurity: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}]}\n")
				s.hooked()
				s.file("bank.csv", "key_ref\n")
				s.file("openapi.yaml", "openapi: 3.1.0\npaths: {}\n")
				s.file("released.yaml", "openapi: 3.1.0\npaths: {}\n")
				line, _, _ := strings.Cut(example, " > ")
				words := shellSplit(line)
				if words[0] != "idempo" {
					t.Fatal("not a command of ours")
				}
				if words[1] == "serve" {
					v := s.serve(words[2:]...)
					v.front()
					v.signals <- os.Interrupt
					if code := <-v.code; code != 0 {
						t.Errorf("exit %d: %s", code, v.err.String())
					}
					return
				}
				r := s.run(words[1:]...)
				if nobody := r.code == exitUnreachable && strings.Contains(line, "webhooks send"); r.code > 2 && !nobody {
					t.Errorf("exit %d: %s", r.code, r.err)
				}
			})
		}
	}
}

func TestKeysSearch(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP19] by what was made, and by trace; not found is said after everything was looked at", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		show := func(args ...string) result {
			return s.run(append([]string{"keys", "show", "--store", "idempo.db"}, args...)...)
		}
		if r := show("--resource", "charge:ch_\x1b[2J91"); r.code != 0 || !strings.HasPrefix(r.out, "key          "+ref("done")) {
			t.Errorf("%+v", r)
		}
		if r := show("--trace", "0af7651916cd43dd8448eb211c80319c"); r.code != 1 || r.err != "idempo: no such key\n" {
			t.Errorf("%+v", r)
		}
		if r := show("--resource", "charge:ch_92", "--json"); r.code != 1 || !strings.Contains(r.err, `"code":"not_found"`) {
			t.Errorf("%+v", r)
		}
		for _, args := range [][]string{{"--trace", "x"}, {"--resource", "x"}, {"--resource", "a:b", "--trace", "12345678"}, {"--resource", "a:b", ref("done")}} {
			if r := show(args...); r.code != 125 {
				t.Errorf("%v: %+v", args, r)
			}
		}
	})
}
