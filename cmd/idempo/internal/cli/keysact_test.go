package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
)

// tty is a terminal: what a person types, and what they see.
type tty struct {
	buffer
	typed *strings.Reader
}

func (t *tty) Terminal() bool              { return true }
func (t *tty) Read(p []byte) (int, error)  { return t.typed.Read(p) }
func (t *tty) Write(p []byte) (int, error) { return t.buffer.Write(p) }

// person runs a command line with a person at the terminal who types these lines.
func (s *shell) person(typed string, args ...string) result {
	s.t.Helper()
	screen := &tty{typed: strings.NewReader(typed)}
	var out buffer
	code := Run(Process{Args: append(args, "--store", "idempo.db"), Env: s.env, Dir: s.dir, In: screen, Out: &out, Err: screen})
	return result{code, out.String(), screen.String()}
}

// do runs a command line of keys on the seeded store.
func (s *shell) do(args ...string) result {
	s.t.Helper()
	return s.run(append(append([]string{"keys"}, args...), "--store", "idempo.db")...)
}

func (s *shell) stateOf(id string) string {
	s.t.Helper()
	r := s.do("show", ref(id), "--json")
	if r.code == 1 {
		return ""
	}
	var k struct{ State string }
	if err := json.Unmarshal([]byte(r.out), &k); err != nil {
		s.t.Fatal(err, r)
	}
	return k.State
}

// dump is the database file as it is read: every table, in order.
func (s *shell) dump() []byte {
	s.t.Helper()
	r := s.do("list", "--json")
	a := s.do("audit", "--json")
	if r.code != 0 || a.code != 0 {
		s.t.Fatal(r, a)
	}
	return append([]byte(r.out), a.out...)
}

func TestKeysResolve(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP21] only from in doubt, with a reason; what calls get from then on", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.want(125, "", "idempo: a reason is required: it stays in the audit\n  add --reason \"why\"\n", "keys", "resolve", ref("lost"), "--failed", "--store", "idempo.db", "--yes")
		s.want(125, "", "idempo: say what happened\n  add --completed, --failed or --probe\n", "keys", "resolve", ref("lost"), "--store", "idempo.db")
		s.want(125, "", "idempo: --completed, --failed, --probe: choose one\n", "keys", "resolve", ref("lost"), "--failed", "--completed")
		s.want(125, "", "idempo: --result, --status, --exit, --resource: only with --completed\n", "keys", "resolve", ref("lost"), "--failed", "--status", "200")
		s.want(125, "", "idempo: this needs a confirmation, and there is no terminal to ask on; nothing was done\n  add --yes\n",
			"keys", "resolve", ref("lost"), "--failed", "--reason", "x", "--store", "idempo.db")
		if s.stateOf("lost") != "in_doubt" {
			t.Fatal("changed without a confirmation")
		}
		s.file("answer.json", "{\"paid\":true}\n")
		s.want(0, ref("lost")+"  in_doubt → completed\n  calls with it get this answer\n", "", "keys", "resolve", ref("lost"), "--completed", "--status", "201", "--result", "@answer.json",
			"--resource", "charge:ch_91", "--reason", "found in the bank portal", "--evidence", "https://bank.example/91", "--yes", "--store", "idempo.db")
		if r := s.do("show", ref("lost"), "--body"); r.out != "{\"paid\":true}\n" {
			t.Errorf("%+v", r)
		}
		show := s.do("show", ref("lost"))
		for _, want := range []string{"state        completed", "result       status 201, 14 bytes", "resource     charge:ch_91", "attempt      1, generation 1: ended without an answer",
			"found in the bank", "https://bank.example/91"} {
			if !strings.Contains(show.out, want) {
				t.Errorf("no %q in\n%s", want, show.out)
			}
		}
		r := s.do("resolve", ref("lost"), "--failed", "--reason", "again", "--yes")
		if r.code != 1 || !strings.HasPrefix(r.err, "idempo: resolve "+ref("lost")+" nothing was done: the key is completed, attempt 1\n  idempo keys ") || r.out != "" {
			t.Errorf("%+v", r)
		}
		r = s.do("resolve", ref("lost"), "--failed", "--reason", "again", "--yes", "--json")
		if r.code != 1 || !strings.Contains(r.err, `"code":"wrong_state"`) {
			t.Errorf("%+v", r)
		}
		audit := s.do("audit", ref("lost"), "--json")
		if n := strings.Count(audit.out, "\n"); n != 3 || strings.Count(audit.out, `"code":"wrong_state"`) != 2 || !strings.Contains(audit.out, `"channel":"cli"`) {
			t.Errorf("%d rows: %s", n, audit.out)
		}
	})
	t.Run("[operations/OP20] an unknown key is not found, and that was audited", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.want(1, "", "idempo: no such key\n", "keys", "resolve", ref("unknown"), "--failed", "--reason", "x", "--yes", "--store", "idempo.db")
		if r := s.do("audit", "--json"); !strings.Contains(r.out, `"code":"not_found","key_ref":""`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[operations/OP27] the actor is the user of this system, or --actor", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.do("resolve", ref("lost"), "--failed", "--reason", "x", "--yes", "--actor", "ann\x1b[2J")
		s.do("retry", ref("declined"), "--reason", "y", "--yes")
		r := s.do("audit")
		if host, _ := os.Hostname(); !strings.Contains(r.out, `by ann\x1b[2J: x`) || !strings.Contains(r.out, "@"+host+": y") || strings.Contains(r.out, "\x1b") {
			t.Errorf("%s", r.out)
		}
		for line := range strings.SplitSeq(r.out, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("over 80 columns: %s", line)
			}
		}
	})
	t.Run("[operations/OP21] the form on a terminal shows what is known, what is not, and each choice", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		r := s.person("9\n1\n201\ncharge:ch_7\n\nseen at the bank\ny\n", "keys", "resolve", ref("lost"))
		if r.code != 0 || s.stateOf("lost") != "completed" {
			t.Errorf("%+v", r)
		}
		golden(t, "form-resolve", timeless(r.err)+r.out)
		s = newShell(t)
		s.seeded()
		for _, typed := range []string{"q\n", "", "2\n", "2\nwhy\nn\n", "2\nwhy\n"} {
			if r := s.person(typed, "keys", "resolve", ref("lost")); r.code != 1 || !strings.HasSuffix(r.err, "idempo: not confirmed; nothing was done\n") || s.stateOf("lost") != "in_doubt" {
				t.Errorf("%q: %+v", typed, r)
			}
		}
		if r := s.person("", "keys", "resolve", ref("lost"), "--failed", "--reason", "x", "--no-input"); r.code != 125 {
			t.Errorf("--no-input asks: %+v", r)
		}
	})
}

func TestKeysOthers(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP23] release", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.want(0, ref("running")+"  pending → in_doubt\n  calls with it are told that nobody knows\n", "", "keys", "release", ref("running"), "--reason", "the host is gone", "--yes", "--store", "idempo.db")
		s = newShell(t)
		s.seeded()
		s.want(0, ref("running")+"  pending → failed\n  the next call with it runs\n", "", "keys", "release", ref("running"), "--nothing-happened", "--reason", "the host is gone", "--yes", "--store", "idempo.db")
	})
	t.Run("[operations/OP24] [operations/OP8] retry; of a success it is severe", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		r := s.do("retry", ref("declined"), "--reason", "the card is valid now", "--yes", "--json")
		if r.code != 0 || !strings.Contains(r.out, `"before":"completed","after":"failed","attempt":1,"generation":2`) {
			t.Errorf("%+v", r)
		}
		r = s.do("retry", ref("lost"), "--reason", "x", "--yes")
		if r.code != 1 || !strings.Contains(r.err, "the key is in_doubt") || !strings.Contains(r.err, "\n  idempo keys resolve "+ref("lost")+" --completed") {
			t.Errorf("%+v", r)
		}
		r = s.do("retry", ref("done"), "--reason", "x", "--yes")
		if r.code != 1 || !strings.Contains(r.err, "\n  add --force\n") {
			t.Errorf("%+v", r)
		}
		severe := []string{"retry", ref("done"), "--force", "--reason", "x", "--yes"}
		s.want(125, "", "idempo: severe: the next call does again what has succeeded; nothing was done\n  add --confirm "+ref("done")+"\n", append(append([]string{"keys"}, severe...), "--store", "idempo.db")...)
		if r = s.do(append(severe, "--confirm", "yes")...); r.code != 125 || s.stateOf("done") != "completed" {
			t.Errorf("%+v", r)
		}
		if r = s.person("why not\n"+ref("old")+"\n", "keys", "retry", ref("done"), "--force"); r.code != 1 || s.stateOf("done") != "completed" {
			t.Errorf("another key's name was accepted: %+v", r)
		}
		if r = s.person("because\n"+ref("done")+"\n", "keys", "retry", ref("done"), "--force"); r.code != 0 || s.stateOf("done") != "failed" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[operations/OP25] purge: answers go, tombstones stay; running keys never, doubts only when told so", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		r := s.do("purge", "--tenant", "acct_7", "--reason", "the customer left", "--yes", "--json")
		if r.code != 0 || !strings.Contains(r.out, `"matched":6,"ok":3,"failed":0,"skipped":3`) {
			t.Fatalf("%+v", r)
		}
		for id, want := range map[string]string{"done": "expired", "declined": "expired", "old": "expired", "refused": "", "running": "pending", "lost": "in_doubt"} {
			if got := s.stateOf(id); got != want {
				t.Errorf("%s is %q, want %q", id, got, want)
			}
		}
		if r = s.do("purge", "--tenant", "acct_7", "--with-tombstones", "--reason", "x", "--yes"); r.code != 125 || !strings.Contains(r.err, "add --confirm purge") || s.stateOf("done") != "expired" {
			t.Errorf("%+v", r)
		}
		r = s.do("purge", "--tenant", "acct_7", "--with-tombstones", "--include-in-doubt", "--reason", "x", "--confirm", "purge")
		if r.code != 0 || s.stateOf("done") != "" || s.stateOf("lost") != "" || s.stateOf("running") != "pending" {
			t.Errorf("%+v", r)
		}
		s.want(125, "", "idempo: name the key, or say by filters which ones\n  see: idempo keys purge --help\n", "keys", "purge", "--reason", "x", "--yes", "--store", "idempo.db")
	})
	t.Run("[operations/OP9] a dry run leaves the database as it was, and says what the real run does", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		before := s.dump()
		for _, args := range [][]string{
			{"resolve", ref("lost"), "--failed"}, {"release", ref("running")}, {"retry", ref("declined")}, {"retry", ref("done"), "--force"},
			{"purge", ref("done"), "--with-tombstones"}, {"purge", "--tenant", "acct_7"}, {"resolve", "--failed", "--operation", "ship"},
		} {
			r := s.do(append(args, "--dry-run", "--json")...)
			if r.code != 0 || !strings.Contains(r.out, `"dry_run":true`) {
				t.Errorf("%v: %+v", args, r)
			}
		}
		if after := s.dump(); !bytes.Equal(before, after) {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	})
}

// many adds n keys in doubt to the seeded store.
func (s *shell) many(n int) {
	s.t.Helper()
	store, err := database.Open(context.Background(), config.Store{SQLite: filepath.Join(s.dir, "idempo.db"), Strict: true, BusyTimeout: time.Second}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer store.Close()
	for i := range n {
		d := sha256.Sum256(fmt.Append(nil, i))
		p := idempo.AcquireParams{Key: idempo.Key{Tenant: "many", Operation: "mail", ID: string(d[:])}, Hash: []byte("h"), Recipe: "r", Guard: idempo.GuardLeased,
			OnCrash: idempo.OnCrashHold, Token: idempo.Token{1}, Lease: time.Hour}
		if _, err := store.Acquire(context.Background(), p); err != nil {
			s.t.Fatal(err)
		}
		if _, err := store.Release(context.Background(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateInDoubt}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestKeysBulk(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP26] [operations/OP7] limit, sample, question, totals, and the command that goes on", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.many(230)
		bulk := []string{"resolve", "--failed", "--tenant", "many", "--reason", "the mail server's log has none", "--limit", "150"}
		if r := s.do(bulk...); r.code != 125 || !strings.Contains(r.err, "150 keys to be resolved\n") || !strings.Contains(r.err, "and 145 more\n") || !strings.HasSuffix(r.err, "add --yes\n") {
			t.Errorf("%+v", r)
		}
		r := s.do(append(bulk, "--yes")...)
		if r.code != 0 || !strings.Contains(r.err, "150 keys resolved, 0 had moved\n") || !strings.Contains(r.err, "there are more; this goes on:\n  idempo keys resolve --failed --tenant many --reason 'the mail server'\\''s log has none' --limit 150 --yes --store idempo.db --after ") {
			t.Fatalf("%+v", r)
		}
		_, cursor, _ := strings.Cut(strings.TrimSpace(r.err), "--after ")
		r = s.do("resolve", "--failed", "--tenant", "many", "--reason", "x", "--yes", "--after", cursor, "--json")
		if r.code != 0 || !strings.Contains(r.out, `"matched":80,"ok":80,"failed":0,"skipped":0,"failures":[],"dry_run":false`) {
			t.Errorf("%+v", r)
		}
		if rows := strings.Count(s.do("audit", "--tenant", "many", "--json").out, "\n"); rows != 230 {
			t.Errorf("%d audit rows", rows)
		}
	})
	t.Run("[operations/OP10] the first Ctrl-C ends the batch, and says how it goes on", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.many(230)
		signals := make(chan os.Signal, 1)
		signals <- os.Interrupt
		var out, errb buffer
		code := Run(Process{Args: strings.Fields("keys resolve --failed --tenant many --reason x --yes --store idempo.db"), Env: s.env, Dir: s.dir,
			In: strings.NewReader(""), Out: &out, Err: &errb, Signals: signals})
		if code != exitInterrupted || !strings.Contains(errb.String(), "100 keys resolved, 0 had moved\nstopped; this goes on:\n  idempo keys resolve --failed --tenant many --reason x --yes --store idempo.db --after ") {
			t.Errorf("exit %d: %s", code, errb.String())
		}
		if r := s.do("resolve", "--failed", "--tenant", "many", "--reason", "x", "--yes", "--json"); !strings.Contains(r.out, `"ok":130,"failed":0,"skipped":100`) {
			t.Errorf("from the beginning: %+v", r)
		}
	})
	t.Run("[operations/OP6] a bar on a terminal, objects with --progress json, stdout is not touched", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.many(230)
		bulk := []string{"keys", "resolve", "--failed", "--tenant", "many", "--reason", "x", "--yes"}
		r := s.person("", append(bulk, "--limit", "110")...)
		if r.code != 0 || r.out != "" || !strings.Contains(r.err, "\rresolve  [........................] 0/110  0/s") || !strings.Contains(r.err, "[########################] 110/110") {
			t.Errorf("%+v", r)
		}
		for piece := range strings.SplitSeq(r.err, "\r") {
			line, _, _ := strings.Cut(piece, "\n")
			if len(line) > 79 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
		r = s.do(append(bulk[1:], "--progress", "json")...)
		if r.code != 0 || r.out != "" || !strings.Contains(r.err, `{"schema":1,"progress":{"what":"resolve","done":0,"total":120,"per_second":0}}`) || !strings.Contains(r.err, `"done":120,"total":120`) {
			t.Errorf("%+v", r)
		}
	})
}

func TestKeysBesideServe(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP28] operators work on the file that serve writes to: no lock error for either", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.many(300)
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		defer up.Close()
		v := s.serve("--upstream", up.URL, "--store", "idempo.db")
		front := v.front()
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for c := range 4 {
			calls.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					r, err := http.NewRequest("POST", front+"/", strings.NewReader("{}"))
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Idempotency-Key", fmt.Sprintf("order-%d-%d", c, i))
					resp, err := http.DefaultClient.Do(r)
					if err != nil || resp.StatusCode != 200 {
						t.Error(resp, err)
						return
					}
					resp.Body.Close()
				}
			})
		}
		for _, args := range [][]string{
			{"resolve", "--failed", "--tenant", "many", "--reason", "x", "--yes"}, {"list", "--json"}, {"audit", "--json"}, {"show", ref("done")},
			{"release", ref("running"), "--reason", "x", "--yes"}, {"purge", "--tenant", "many", "--reason", "x", "--yes"},
		} {
			if r := s.do(args...); r.code != 0 {
				t.Errorf("%v: exit %d, %s", args, r.code, r.err)
			}
		}
		cancel()
		calls.Wait()
		v.signals <- syscall.SIGTERM
		if code := <-v.code; code != 0 {
			t.Errorf("serve: exit %d, %s", code, v.err.String())
		}
		if r := s.do("audit", "--tenant", "many", "--json"); strings.Count(r.out, `"outcome":"done"`) != 600 {
			t.Errorf("%d audit rows", strings.Count(r.out, "\n"))
		}
	})
}
