package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestKeysShowEncrypted(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "canary-answer") }))
	defer up.Close()
	const digest = "digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}]"
	config := func(more string) {
		s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\nsecurity: {"+digest+more+"}\n")
	}
	call := func(key string) {
		t.Helper()
		v := s.serve("--upstream", up.URL)
		r, err := http.NewRequest("POST", v.front()+"/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		v.signals <- os.Interrupt
		if code := <-v.code; code != 0 {
			t.Fatal(code, v.err.String())
		}
	}
	config("")
	call("clear")
	config(", encryption_keys: [{id: e1, value: 0123456789abcdef0123456789abcdef}]")
	call("sealed")
	show := func(key string, more ...string) result {
		return s.run(append([]string{"keys", "show", "--tenant", "default", "--operation", "gateway.upstream", "--id", key}, more...)...)
	}
	t.Run("[security/SEC35] records in clear and encrypted ones are listed as such", func(t *testing.T) {
		rows := s.run("keys", "list", "--json").out
		if strings.Count(rows, "\n") != 2 || strings.Count(rows, `"sealed":"e1"`) != 1 || strings.Count(rows, `"sealed"`) != 1 || strings.Contains(rows, "canary") {
			t.Error(rows)
		}
		if r := show("sealed"); !strings.Contains(r.out, "result       status 200, 13 bytes, encrypted under e1\n") {
			t.Error(r)
		}
		if r := show("clear"); !strings.Contains(r.out, "result       status 200, 13 bytes\n") {
			t.Error(r)
		}
	})
	t.Run("--body opens an encrypted answer for its key, and only with the encryption key", func(t *testing.T) {
		for _, key := range []string{"clear", "sealed"} {
			if r := show(key, "--body"); r.code != 0 || r.out != "canary-answer" || r.err != "" {
				t.Errorf("%s: %+v", key, r)
			}
		}
		list := strings.Fields(s.run("keys", "list").out)
		var refused int
		for _, word := range list {
			if !strings.HasPrefix(word, "k_") {
				continue
			}
			r := s.run("keys", "show", word, "--body")
			if r.code == 125 && r.out == "" && strings.Contains(r.err, "only its key opens it\n  name the key by --tenant, --operation and --id") {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("%d of two refused by reference", refused)
		}
		config(", encryption_keys: [{id: e2, value: 0123456789abcdef0123456789abcdef}]")
		if r := show("sealed", "--body"); r.code != 1 || r.out != "" || !strings.Contains(r.err, `encryption key "e1" is not configured`) {
			t.Errorf("%+v", r)
		}
		if r := show("clear", "--body"); r.code != 0 || r.out != "canary-answer" {
			t.Errorf("%+v", r)
		}
	})
}
