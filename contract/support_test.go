package contract_test

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

var update = flag.Bool("update", false, "rewrite golden files") //nolint:gochecknoglobals // a test's flag

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != string(got) {
		t.Errorf("%s (go test ./contract -update): %v\n%s", file, err, got)
	}
}

func engine(t *testing.T, c idempo.Config) *idempo.Engine {
	t.Helper()
	c.DigestKeys = []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}
	e, err := idempo.New(memstore.New(memstore.Options{}), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wrapped is one operation, and what a service that wraps it so says of it.
type wrapped struct {
	op    idempo.Operation
	rules idemhttp.Rules
	at    []string
}

func middleware(t *testing.T, e *idempo.Engine, all ...wrapped) (*idemhttp.Middleware, map[string][]string, http.Handler) {
	t.Helper()
	m, err := idemhttp.New(e, idemhttp.Config{TenantFunc: func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][]string{}
	mux := http.NewServeMux()
	for _, w := range all {
		h, err := m.Wrap(w.op, w.rules, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
		if err != nil {
			t.Fatal(err)
		}
		at[w.op.Name] = w.at
		for _, p := range w.at {
			mux.Handle(p, h)
		}
	}
	return m, at, mux
}

// shop is a service with an atomic and a leased operation, a natural one and one that opts out.
func shop(t *testing.T) *contract.Contract {
	t.Helper()
	m, at, _ := middleware(t, engine(t, idempo.Config{}),
		wrapped{idempo.Operation{Name: "create-payment", Guard: idempo.GuardAtomic, Retention: 24 * time.Hour}, idemhttp.Rules{Exclude: []string{"/sent_at"}}, []string{"POST /v1/payments"}},
		wrapped{idempo.Operation{Name: "send-mail", Guard: idempo.GuardLeased, Tombstone: idempo.Forever, Issued: true},
			idemhttp.Rules{Key: idemhttp.KeyOptional, Profile: "stripe", Wait: 5 * time.Second, MismatchStatus: 409, Outcomes: map[int]idemhttp.Outcome{404: idemhttp.OutcomeRelease, 502: idemhttp.OutcomeKeep}}, []string{"POST /v1/accounts/{account}/mails/"}})
	c := contract.New("Shop", "2.1")
	if err := c.Middleware(m, at); err != nil {
		t.Fatal(err)
	}
	c.Natural("PUT /v1/settings", "sets the whole state")
	c.OptOut("POST /v1/logs", "a line too many is no harm")
	return c
}

// load reads a document that must be readable.
func load(t *testing.T, text string) *contract.Document {
	t.Helper()
	d, err := contract.Load("doc.json", []byte(text), contract.Files{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
