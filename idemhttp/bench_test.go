package idemhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

func BenchmarkFirst(b *testing.B) {
	body := []byte(`{"note":"` + strings.Repeat("x", 245) + `"}`)
	engine, _ := idempo.New(memstore.New(memstore.Options{MaxRecords: 1 << 30}), idempo.Config{DigestKeys: digestKeys()})
	m, _ := idemhttp.New(engine, idemhttp.Config{TenantFunc: func(*http.Request) (string, error) { return "acct_1", nil }})
	h, _ := m.Wrap(idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}, idemhttp.Rules{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b [512]byte
		io.ReadFull(r.Body, b[:])
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	}))
	b.ReportAllocs()
	r := httptest.NewRequest("POST", "/v1/pay", nil)
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("Idempotency-Key", "x")
	w := &discardWriter{h: http.Header{}}
	rd := bytes.NewReader(body)
	for i := 0; b.Loop(); i++ {
		r.Header["Idempotency-Key"][0] = "key-" + strconv.Itoa(i)
		rd.Reset(body)
		r.Body = io.NopCloser(rd)
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}
