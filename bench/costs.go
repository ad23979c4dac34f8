package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

// body256 is a JSON document of 256 bytes.
func body256() string { return `{"amount":1200,"note":"` + strings.Repeat("x", 256-25) + `"}` }

// allocations counts what a guarded call allocates over the bare handler, on memstore.
func allocations(_ context.Context, _ settings) ([]result, error) {
	store := memstore.New(memstore.Options{})
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
	if err != nil {
		return nil, err
	}
	m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
	if err != nil {
		return nil, err
	}
	handler := http.HandlerFunc(pay)
	var out []result
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		guarded, err := m.Wrap(idempo.Operation{Name: "pay-" + string(guard), Guard: guard}, idemhttp.Rules{}, handler)
		if err != nil {
			return nil, err
		}
		n := 0
		call := func(h http.Handler, key string) {
			r := httptest.NewRequest(http.MethodPost, "/v1/payments", strings.NewReader(body256()))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", key)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		fresh := func() string { n++; return fmt.Sprintf("%s-%07d", guard, n) }
		bare := testing.AllocsPerRun(500, func() { call(handler, fresh()) })
		first := testing.AllocsPerRun(500, func() { call(guarded, fresh()) }) - bare
		replay := testing.AllocsPerRun(500, func() { call(guarded, fmt.Sprintf("%s-%07d", guard, n)) }) - bare
		out = append(out,
			result{"H53", "allocations of a guarded first call minus the bare handler, " + string(guard) + ", memstore, 256-byte JSON", first, "allocations", "≤ 40", first <= 40, ""},
			result{"H53", "the same of a replay", replay, "allocations", "≤ 40", replay <= 40, ""})
	}
	return out, nil
}

// recordSizes measures memstore's memory per record.
func recordSizes(ctx context.Context, _ settings) ([]result, error) {
	const n = 50_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	store := memstore.New(memstore.Options{})
	engine, err := engineOver(store)
	if err != nil {
		return nil, err
	}
	before := heap()
	body := []byte(body256())
	for i := range int64(n) {
		_, err := engine.Do(ctx, requestOf("create-order", i), func(context.Context, *idempo.Claim) (idempo.Result, error) {
			return idempo.Result{Status: 201, Body: body}, nil
		})
		if err != nil {
			return nil, err
		}
	}
	per := float64(heap()-before) / n
	runtime.KeepAlive(store)
	runtime.KeepAlive(engine)
	return []result{{"E40", "memstore: bytes per completed record with a 256-byte result, indexes (and the engine's own notes) included", per, "bytes", "≤ 1,200", per <= 1200, ""}}, nil
}
