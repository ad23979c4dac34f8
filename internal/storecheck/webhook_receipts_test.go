package storecheck

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
	"github.com/idempo/idempo/webhook"
)

// A hooked is a webhook receiver on a real database, and the database beside it.
type hooked struct {
	t     *testing.T
	store idempo.Store
	dump  func() string // every column of every row of receipts and records
}

// dumped reads tables as bytes, whatever their columns are.
func dumped(t *testing.T, db *sql.DB, tables ...string) string {
	t.Helper()
	var all strings.Builder
	for _, table := range tables {
		rows, err := db.QueryContext(t.Context(), "select * from "+table)
		must(t, err)
		names, err := rows.Columns()
		must(t, err)
		for rows.Next() {
			values, into := make([][]byte, len(names)), make([]any, len(names))
			for i := range values {
				into[i] = &values[i]
			}
			must(t, rows.Scan(into...))
			for i, v := range values {
				fmt.Fprintf(&all, "%s=%s\n", names[i], v)
			}
		}
		must(t, rows.Err())
		must(t, rows.Close())
	}
	return all.String()
}

func hookedStores(t *testing.T) map[string]func(t *testing.T) hooked {
	return map[string]func(t *testing.T) hooked{
		"sqlite": func(t *testing.T) hooked {
			s, file := sqliteStore(t, sqlite.Options{})
			db := sqliteRaw(t, file)
			return hooked{t, s, func() string { return dumped(t, db, "idempo_receipts", "idempo_records") }}
		},
		"postgres": func(t *testing.T) hooked {
			dsn := postgresDSN(t)
			o := migrated(t, dsn, postgres.Options{})
			p := openSQL(t, "pgx", dsn, o)
			return hooked{t, p.Store, func() string { return dumped(t, p.db, `"`+o.Schema+`".receipts`, `"`+o.Schema+`".records`) }}
		},
		"mysql": func(t *testing.T) hooked {
			m := newMySQL(t, mysql.Options{}, nil)
			return hooked{t, m.Store, func() string { return dumped(t, m.db, "idempo_receipts", "idempo_records") }}
		},
	}
}

func (h hooked) receiver(handle webhook.HandlerFunc, keys ...idempo.Secret) *webhook.Receiver {
	h.t.Helper()
	engine, err := idempo.New(h.store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("32 bytes that are no secret at all")}}, EncryptionKeys: keys})
	must(h.t, err)
	rcv, err := webhook.New(webhook.Config{Engine: engine, Sources: []webhook.Source{{Name: "pay", Tenant: "acme", Provider: "stripe",
		Secrets: []webhook.Secret{webhook.FromText("2026a", "made up for this test")}, Retry: webhook.Retry{Attempts: 3, First: 1, Max: 1}}}})
	must(h.t, err)
	rcv.Handle("pay", "*", handle)
	return rcv
}

// send delivers body with a header of its own.
func (h hooked) send(rcv *webhook.Receiver, body string) {
	h.t.Helper()
	out, err := webhook.Sign(webhook.Source{Name: "pay", Provider: "stripe", Secrets: []webhook.Secret{webhook.FromText("x", "made up for this test")}},
		webhook.SignParams{Body: []byte(body), At: time.Now()})
	must(h.t, err)
	r := httptest.NewRequest(http.MethodPost, "/hooks/pay?shop=7", bytes.NewReader(out.Body))
	r.Header = out.Header
	r.Header.Set("X-Customer", "canary-header")
	r.Header.Set("Authorization", "canary-credential")
	w := httptest.NewRecorder()
	if rcv.For("pay").ServeHTTP(w, r); w.Code != http.StatusOK {
		h.t.Fatal(w.Code)
	}
}

func (h hooked) items(rcv *webhook.Receiver) []webhook.Item {
	h.t.Helper()
	items, err := rcv.Items(h.t.Context(), "pay", inbox.ListParams{})
	must(h.t, err)
	return items
}

// until runs workers until ok.
func (h hooked) until(rcv *webhook.Receiver, ok func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- rcv.Run(ctx) }()
	for !ok() {
		if ctx.Err() != nil {
			h.t.Fatalf("not in a minute: %+v", h.items(rcv))
		}
	}
	cancel()
	must(h.t, <-ended)
}

func TestWebhookReceipts(t *testing.T) {
	t.Parallel()
	for name, open := range hookedStores(t) {
		t.Run("[webhooks/W12] what is kept of a delivery, encrypted where the store encrypts: "+name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			one := func(id, more string) string {
				return `{"id":"` + id + `","type":"paid","created":7,"data":{"object":{"id":"ch_1","card":"canary-body` + more + `"}}}`
			}
			fails := true
			handle := func(_ context.Context, ev *webhook.Event) error {
				if ev.Header.Get("X-Customer") != "canary-header" || !bytes.Contains(ev.Body, []byte("canary-body")) {
					t.Errorf("handled: %q %q", ev.Header, ev.Body)
				}
				if fails {
					fails = false
					return fmt.Errorf("not yet")
				}
				return nil
			}
			clear := h.receiver(handle)
			h.send(clear, one("evt_0", ""))
			if raw := h.dump(); !strings.Contains(raw, "canary-body") || !strings.Contains(raw, "canary-header") || strings.Contains(raw, "canary-credential") {
				t.Fatal("the receipt is not where this test looks for it, or a credential is")
			}
			e1, e2 := idempo.Secret{ID: "e1", Value: []byte("0123456789abcdef0123456789abcdef")}, idempo.Secret{ID: "e2", Value: []byte("0123456789abcdef0123456789abcdeX")}
			h.until(clear, func() bool { return h.items(clear)[0].Status == "handled" })
			rcv := h.receiver(handle, e1)
			before := strings.Count(h.dump(), "canary")
			h.send(rcv, one("evt_1", ""))
			h.send(rcv, one("evt_1", ""))
			h.send(rcv, one("evt_1", " of another"))
			fails = true
			h.until(rcv, func() bool { return h.items(rcv)[1].Status == "handled" })
			if got := strings.Count(h.dump(), "canary"); got != before {
				t.Errorf("%d canaries in clear, %d of them from before", got, before)
			}
			rotated := h.receiver(handle, e2, e1)
			items := h.items(rotated)
			if len(items) != 3 {
				t.Fatalf("%d items", len(items))
			}
			it, conflict := items[1], items[2]
			if it.Receipt <= items[0].Receipt || it.Tenant != "acme" || it.Source != "pay" || it.Provider != "stripe" || it.ReceivedAt.IsZero() || it.DeliveryID != "evt_1" || !it.Signed ||
				it.Method != "POST" || it.Path != "/hooks/pay?shop=7" || it.Header.Get("X-Customer") != "canary-header" || it.Header.Get("Authorization") != "[redacted]" ||
				it.Header.Get("Stripe-Signature") != "[redacted]" || string(it.Body) != one("evt_1", "") || it.Scheme == "" || it.Secret != "2026a" || it.SignedAt.IsZero() ||
				it.Skew < 0 || it.Skew > time.Minute || it.Type != "paid" || it.Lane != "ch_1" || it.Version != "7" || it.Sealed != "e1" || it.Seen != 1 || it.SeenAt.IsZero() || it.Attempts != 2 || it.FirstError() != "not yet" {
				t.Errorf("%+v", it)
			}
			if conflict.Status != "parked" || conflict.Reason != webhook.ParkedConflict || conflict.Repeats != it.Receipt || conflict.Sealed != "e1" {
				t.Errorf("%+v", conflict)
			}
			if old := items[0]; old.Sealed != "" || string(old.Body) != one("evt_0", "") || old.Status != "handled" {
				t.Errorf("from before: %+v", old)
			}
			lost := h.items(h.receiver(handle, e2))
			if lost[1].Unreadable == nil || lost[1].Body != nil || lost[1].DeliveryID != "" || lost[0].Unreadable != nil {
				t.Errorf("without its key: %+v", lost[1])
			}
		})
	}
}
