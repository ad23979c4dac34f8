package idemhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

// discardWriter is a connection that costs nothing.
type discardWriter struct{ h http.Header }

func (d *discardWriter) Header() http.Header         { return d.h }
func (d *discardWriter) WriteHeader(int)             {}
func (d *discardWriter) Write(p []byte) (int, error) { return len(p), nil }

func TestAllocations(t *testing.T) { // not parallel: AllocsPerRun
	if raceEnabled {
		t.Skip("the race detector allocates and empties pools")
	}
	body := []byte(`{"amount":1200,"currency":"EUR","reference":"order-81","customer":{"id":"cus_4711","name":"Ada Lovelace","email":"ada@example.org"},"items":[{"sku":"A-1","qty":2},{"sku":"B-7","qty":1}],"capture":true,"note":null,"metadata":{"shop":"berlin","channel":"w"}}`)
	if len(body) != 256 {
		t.Fatal(len(body))
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b [512]byte
		if n, _ := io.ReadFull(r.Body, b[:]); n != len(body) {
			t.Errorf("read %d bytes", n)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: digestKeys()})
		if err != nil {
			t.Fatal(err)
		}
		m, err := idemhttp.New(engine, idemhttp.Config{TenantFunc: func(*http.Request) (string, error) { return "acct_1", nil }})
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.Wrap(idempo.Operation{Name: "pay", Guard: guard}, idemhttp.Rules{}, bare)
		if err != nil {
			t.Fatal(err)
		}
		const runs = 200
		requests := make([]*http.Request, 0, 2*runs)
		for i := range 2 * runs {
			r := httptest.NewRequest("POST", "/v1/pay", nil)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept-Encoding", "gzip")
			r.Header.Set("Idempotency-Key", "key-"+strconv.Itoa(i))
			requests = append(requests, r)
		}
		next := 0
		w := &discardWriter{h: http.Header{}}
		measure := func(h http.Handler, fresh bool) float64 {
			rd := bytes.NewReader(body)
			return testing.AllocsPerRun(runs-1, func() {
				r := requests[0]
				if fresh {
					r = requests[next]
					next++
				}
				rd.Reset(body)
				r.Body = io.NopCloser(rd)
				clear(w.h)
				h.ServeHTTP(w, r)
			})
		}
		base := measure(bare, false)
		t.Run("[http/H53] at most 40 allocations over the bare handler: "+string(guard), func(t *testing.T) {
			first, replay := measure(h, true)-base, measure(h, false)-base
			if first > 40 || replay > 40 {
				t.Errorf("a first call allocates %.0f, a replay %.0f more than the bare handler", first, replay)
			}
			t.Logf("first %.0f, replay %.0f over %.0f", first, replay, base)
		})
	}
}
