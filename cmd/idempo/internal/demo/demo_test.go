package demo

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestMain lets the test binary be the services' program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "demo-service" {
		var c Child
		f := flag.NewFlagSet("demo-service", flag.ExitOnError)
		f.StringVar(&c.Kind, "kind", "", "")
		f.StringVar(&c.Dir, "dir", "", "")
		f.StringVar(&c.Ledger, "ledger", "", "")
		f.StringVar(&c.Listen, "listen", "", "")
		_ = f.Parse(os.Args[2:])
		if err := RunChild(c, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, seed uint64) *Stage {
	t.Helper()
	s, err := Open(t.Context(), Options{Seed: seed, Env: os.Environ(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestScenes(t *testing.T) {
	t.Parallel()
	want := map[string]struct {
		bare, guarded int
		verdicts      []string
	}{
		"lost":    {2, 1, []string{"no_answer", "replayed"}},
		"double":  {2, 1, []string{"executed", "replayed"}},
		"changed": {2, 1, []string{"executed", "mismatch"}},
		"crash":   {2, 1, []string{"in_doubt", "replayed"}},
	}
	s := open(t, 7)
	for _, name := range Names() {
		t.Run("[operations/GS5] "+name, func(t *testing.T) {
			o, err := s.Play(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			w := want[name]
			if o.Bare.Charges != w.bare || o.Guarded.Charges != w.guarded || o.Intents != 1 || !slices.Equal(o.Verdicts, w.verdicts) || !o.OK() {
				t.Errorf("%+v", o)
			}
			if name == "changed" && o.Bare.Total != 3*o.Guarded.Total {
				t.Errorf("bare %d, guarded %d", o.Bare.Total, o.Guarded.Total)
			}
		})
	}
	t.Run("[operations/GS6] the same crash with the library's atomic guard is rolled back, and the retry runs", func(t *testing.T) {
		o, err := s.Play(t.Context(), "crash")
		if err != nil {
			t.Fatal(err)
		}
		if o.Library == nil || o.Library.Charges != 1 || !slices.Equal(o.Library.Answers, []string{"no answer", "201 executed"}) {
			t.Errorf("%+v", o.Library)
		}
	})
	if _, err := s.Play(t.Context(), "flood"); err == nil {
		t.Error("a scene that is not there")
	}
}

func TestSameSeedSameNumbers(t *testing.T) {
	t.Parallel()
	t.Run("[operations/GS7] two plays with one seed are equal, with another they are not", func(t *testing.T) {
		t.Parallel()
		play := func(seed uint64) (out []Outcome) {
			s := open(t, seed)
			for _, name := range []string{"lost", "changed"} {
				o, err := s.Play(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, o)
			}
			return out
		}
		a, b, c := play(11), play(11), play(12)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%+v\n%+v", a, b)
		}
		if reflect.DeepEqual(a, c) {
			t.Error("the seed changes nothing")
		}
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	t.Run("[operations/GS4] own processes, own ledgers, loopback only; no file and no process afterwards", func(t *testing.T) {
		t.Parallel()
		s, err := Open(t.Context(), Options{Seed: 3, Env: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Play(t.Context(), "crash"); err != nil {
			t.Error(err)
		}
		pids := []int{s.bare.cmd.Process.Pid, s.behind.cmd.Process.Pid}
		if pids[0] == pids[1] || pids[0] == os.Getpid() {
			t.Error("not processes of their own")
		}
		for _, address := range []string{s.bare.address, s.behind.address, s.gateway.Addr().String(), s.gateway.AdminAddr().String()} {
			if !strings.HasPrefix(address, "127.0.0.1:") {
				t.Errorf("%s is not loopback", address)
			}
		}
		for _, ledger := range []string{"bare.ledger", "guarded.ledger", "idempo.db"} {
			if _, err := os.Stat(filepath.Join(s.dir, ledger)); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", s.dir, err)
		}
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
				t.Errorf("process %d is left", pid)
			}
		}
	})
	t.Run("[operations/GS4] a service ends when its parent is gone", func(t *testing.T) {
		t.Parallel()
		in, parent := io.Pipe()
		out, said := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- RunChild(Child{Kind: "payments", Dir: t.TempDir(), Ledger: "l", Listen: "127.0.0.1:0"}, in, said)
		}()
		var h hello
		if err := json.NewDecoder(out).Decode(&h); err != nil || !strings.HasPrefix(h.Address, "127.0.0.1:") {
			t.Fatal(h, err)
		}
		parent.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("a start that fails is cleaned up", func(t *testing.T) {
		t.Parallel()
		s, err := Open(t.Context(), Options{Program: filepath.Join(t.TempDir(), "nothing"), Env: os.Environ()})
		if err == nil {
			t.Fatal("started")
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Error(err)
		}
	})
}

func TestService(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	crashed := false
	p := newPayments(path, func() { crashed = true })
	call := func(method, target, body string, header ...string) (int, string) {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for range 2 { // the service knows no repeated call
		if code, _ := call("POST", "/v1/payments", `{"amount":5}`, "Idempotency-Key", "k"); code != 201 {
			t.Error(code)
		}
	}
	if code, body := call("GET", "/v1/payments?ref=k", ""); code != 200 || !strings.HasPrefix(body, `{"count":2,`) {
		t.Error(code, body)
	}
	if _, body := call("GET", "/v1/payments?ref=other", ""); !strings.HasPrefix(body, `{"count":0,`) {
		t.Error(body)
	}
	for _, bad := range []string{"", "{}", `{"amount":-1}`, "x"} {
		if code, _ := call("POST", "/v1/payments", bad); code != 422 {
			t.Errorf("%q: %d", bad, code)
		}
	}
	if code, _ := call("GET", "/", ""); code != http.StatusNotFound {
		t.Error(code)
	}
	if call("POST", "/v1/payments", `{"amount":5}`, "Idempotency-Key", "k", crashHeader, "1"); crashed {
		t.Error("crashed on a reference that was charged before")
	}
	if call("POST", "/v1/payments", `{"amount":5}`, "Idempotency-Key", "k2", crashHeader, "1"); !crashed {
		t.Error("did not crash")
	}
	charges, err := readLedger(path)
	if err != nil || len(charges) != 4 || charges[3].Ref != "k2" {
		t.Error(charges, err)
	}
	if err := os.WriteFile(path, []byte("broken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readLedger(path); err == nil {
		t.Error("a broken ledger is read")
	}
}

func TestCutterLosesOneAnswer(t *testing.T) {
	t.Parallel()
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusCreated)
	}))
	defer srv.Close()
	c, err := newCutter(strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	r := request{url: "http://" + c.address(), key: "k", amount: 1}
	c.lose()
	if a := r.send(context.Background()); a.status != 0 || calls != 1 {
		t.Errorf("%+v after %d calls: the answer must be lost, and the request must not", a, calls)
	}
	if a := r.send(context.Background()); a.status != 201 || calls != 2 {
		t.Errorf("%+v after %d calls", a, calls)
	}
}
