package demo

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/sqlite"
)

const chargesTable = `CREATE TABLE IF NOT EXISTS charges (id INTEGER PRIMARY KEY, ref TEXT NOT NULL, amount INTEGER NOT NULL)`

// newLibrary is the payments service as it looks with the library: key, charge and answer are one transaction.
func newLibrary(ctx context.Context, dir string, crash func()) (http.Handler, io.Closer, error) {
	store, err := sqlite.Open(ctx, "sqlite", filepath.Join(dir, "library.db"), sqlite.Options{})
	if err != nil {
		return nil, nil, err
	}
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "demo", Value: []byte("a demo needs no secret, only 32 bytes")}}})
	if err != nil {
		return nil, store, err
	}
	m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
	if err != nil {
		return nil, store, err
	}
	h, err := m.Wrap(idempo.Operation{Name: "create-payment", Guard: idempo.GuardAtomic}, idemhttp.Rules{},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			createAtomic(w, r, dir, crash)
		}))
	return h, store, err
}

func createAtomic(w http.ResponseWriter, r *http.Request, dir string, crash func()) {
	var in struct {
		Amount int64 `json:"amount"`
	}
	tx := sqlite.Tx(r.Context())
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	if _, err := tx.ExecContext(r.Context(), chargesTable); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	res, err := tx.ExecContext(r.Context(), `INSERT INTO charges (ref, amount) VALUES (?, ?)`, r.Header.Get("Idempotency-Key"), in.Amount)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256([]byte(r.Header.Get("Idempotency-Key")))
	if r.Header.Get(crashHeader) != "" && firstTime(filepath.Join(dir, fmt.Sprintf("crashed-%x", sum[:8]))) {
		crash()
	}
	id, _ := res.LastInsertId()
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(Charge{ID: fmt.Sprintf("ch_%d", id), Ref: r.Header.Get("Idempotency-Key"), Amount: in.Amount})
}

// countAtomic counts the committed charges of a reference, in the file and beside the service.
func countAtomic(ctx context.Context, dir, ref string) (n int, err error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, "library.db"))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, chargesTable); err != nil {
		return 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM charges WHERE ref = ?`, ref).Scan(&n)
	return n, err
}
