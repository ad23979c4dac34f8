package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"log"
	"net/http"

	_ "modernc.org/sqlite"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/sqlite"
)

func main() {
	secret := make([]byte, 32) // from your secret store: with a new one every old key looks unknown
	_, _ = rand.Read(secret)
	mux, err := service(context.Background(), "payments.db", secret)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("listening on http://127.0.0.1:8088/v1/payments")
	log.Fatal(http.ListenAndServe("127.0.0.1:8088", mux))
}

// region: library
func service(ctx context.Context, path string, secret []byte) (*http.ServeMux, error) {
	store, err := sqlite.Open(ctx, "sqlite", path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: secret}}})
	if err != nil {
		return nil, err
	}
	guard, err := idemhttp.New(engine, idemhttp.Config{TenantFunc: account})
	if err != nil {
		return nil, err
	}
	pay, err := guard.Wrap(idempo.Operation{Name: "create-payment", Guard: idempo.GuardAtomic}, idemhttp.Rules{}, http.HandlerFunc(create))
	mux := http.NewServeMux()
	mux.Handle("POST /v1/payments", pay)
	return mux, err
}

func create(w http.ResponseWriter, r *http.Request) {
	id, err := insertPayment(sqlite.Tx(r.Context()), r) // the payment commits together with key and answer
	answer(w, id, err)
}

// end: library

// account is the authenticated caller; a real service takes it from its session or token.
func account(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

func insertPayment(tx *sql.Tx, r *http.Request) (id int64, err error) {
	var body struct{ Amount int64 }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return 0, err
	}
	if _, err = tx.ExecContext(r.Context(), `CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL)`); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(r.Context(), `INSERT INTO payments (account, amount) VALUES (?, ?) RETURNING id`, r.Header.Get("X-Account"), body.Amount).Scan(&id)
	return id, err
}

func answer(w http.ResponseWriter, id int64, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"error":"the payment was not understood"}`))
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]int64{"id": id})
}
