package idemhttp

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// body256 is a JSON body of 256 bytes, as page http, H53 measures it.
const body256 = `{"amount":1200,"currency":"EUR","reference":"order-81","customer":{"id":"cus_4711","name":"Ada Lovelace","email":"ada@example.org"},"items":[{"sku":"A-1","qty":2},{"sku":"B-7","qty":1}],"capture":true,"note":null,"metadata":{"shop":"berlin","channel":"w"}}`

func testMAC() hash.Hash {
	return hmac.New(sha256.New, []byte("an hmac key of thirty-two bytes!"))
}

func jsonRequest(body string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/payments", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "order-81")
	return r
}

// Not parallel: AllocsPerRun counts what every goroutine allocates.
func TestAllocationsOfKeyAndFingerprint(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	if len(body256) != 256 {
		t.Fatal(len(body256))
	}
	keys, err := newKeySource(Rules{})
	if err != nil {
		t.Fatal(err)
	}
	sel, err := newSelection(Rules{})
	if err != nil {
		t.Fatal(err)
	}
	r := jsonRequest(body256)
	body := content{mem: []byte(body256)}
	// [http/H53] the part of key and fingerprint in the 40 allocations of a guarded first call
	first := testing.AllocsPerRun(200, func() {
		p := newPayload(r.Header, body, 4<<20)
		if _, ok, err := keys.extract(r, p); !ok || err != nil {
			t.Fatal(err)
		}
		if _, _, err := sel.fingerprint(testMAC, parts{request: r, body: p}, true); err != nil {
			t.Fatal(err)
		}
	})
	if first > 12 {
		t.Errorf("key and fingerprint of a first call allocate %v times, more than 12", first)
	}
	bare := testing.AllocsPerRun(200, func() { h := testMAC(); h.Reset(); h.Sum(nil) })
	t.Logf("%v allocations, %v of them by the keyed hash", first, bare)
}

func BenchmarkFingerprint(b *testing.B) {
	sel, err := newSelection(Rules{})
	if err != nil {
		b.Fatal(err)
	}
	r := jsonRequest(body256)
	b.ReportAllocs()
	for b.Loop() {
		p := newPayload(r.Header, content{mem: []byte(body256)}, 4<<20)
		if _, _, err := sel.fingerprint(testMAC, parts{request: r, body: p}, true); err != nil {
			b.Fatal(err)
		}
	}
}
