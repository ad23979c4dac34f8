package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"
)

func main() {
	addr := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:9000")
	log.Printf("bare payments on http://%s/v1/payments", addr)
	log.Fatal(http.ListenAndServe(addr, service()))
}

func service() http.Handler {
	var payments atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/payments", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "{\"id\":%d}\n", payments.Add(1))
	})
	mux.HandleFunc("GET /v1/payments", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "%d payments\n", payments.Load())
	})
	return mux
}
