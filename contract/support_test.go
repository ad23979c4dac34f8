package contract_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

// same compares a printed document with what it should be, and names the first line that differs.
func same(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		switch {
		case i >= len(g):
			t.Fatalf("line %d is missing: %s", i+1, w[i])
		case i >= len(w):
			t.Fatalf("line %d is too much: %s", i+1, g[i])
		case g[i] != w[i]:
			t.Fatalf("line %d:\n%s\nwant\n%s", i+1, g[i], w[i])
		}
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
