package main

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestPaymentsMayBeRepeated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "payments.db")
	mux, err := service(t.Context(), path, []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(mux)
	defer srv.Close()
	post := func(account, key, body string) (status int, replayed, text string) {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v1/payments", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Account", account)
		req.Header.Set("Idempotency-Key", key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0, "", ""
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return res.StatusCode, res.Header.Get("Idempotent-Replayed"), string(b)
	}
	count := func() (n int) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.QueryRow("SELECT count(*) FROM payments").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Run("[operations/GS3] the library on SQLite: one payment, every retry gets the first answer", func(t *testing.T) {
		status, replayed, first := post("acct_7", "order-81", `{"amount":1200}`)
		if status != 201 || replayed != "" {
			t.Fatal(status, first)
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if status, replayed, text := post("acct_7", "order-81", `{ "amount": 1200 }`); status != 201 || replayed != "true" || text != first {
					t.Errorf("%d %s %s", status, replayed, text)
				}
			})
		}
		wg.Wait()
		if status, _, text := post("acct_7", "order-81", `{"amount":9}`); status != 422 || !strings.Contains(text, `"/amount"`) {
			t.Error(status, text)
		}
		if status, replayed, _ := post("acct_8", "order-81", `{"amount":1200}`); status != 201 || replayed != "" {
			t.Error("another account has its own keys:", status, replayed)
		}
		if status, _, _ := post("acct_7", "", `{"amount":1200}`); status != 400 {
			t.Error("no key:", status)
		}
		if n := count(); n != 2 {
			t.Errorf("%d payments, want 2", n)
		}
	})
	t.Run("a payment that is not understood leaves nothing and is answered again", func(t *testing.T) {
		before := count()
		for i, want := range []string{"", "true"} {
			if status, replayed, _ := post("acct_7", "order-82", `{"amount":"x"}`); status != 422 || replayed != want {
				t.Error(fmt.Sprint("call ", i), status, replayed)
			}
		}
		if n := count(); n != before {
			t.Errorf("%d payments more", n-before)
		}
	})
}
