package pagecheck

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

// shop is a site whose order form works without script: a hidden field from Middleware.Field makes each page one intent.
type shop struct {
	*httptest.Server
	orders atomic.Int64
	late   atomic.Int64 // by how much the store's clock is ahead
	mu     sync.Mutex
	form   string // the page that was made last, for a second tab of it
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{}
	store := memstore.New(memstore.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(s.late.Load())) }})
	engine, err := idempo.New(store, idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations: []idempo.Operation{{Name: "order", Guard: idempo.GuardLeased, Issued: true, IssuedFor: time.Hour}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	order, err := m.Wrap(idempo.Operation{Name: "order", Guard: idempo.GuardLeased, Issued: true, IssuedFor: time.Hour},
		idemhttp.Rules{KeyPointer: "/idempotency_key", Wait: 10 * time.Second}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, fmt.Sprintf("/orders/%d", s.orders.Add(1)), http.StatusSeeOther)
		}))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", order)
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<!doctype html><link rel=icon href=data:,><title>Order</title><main>Your order has number %s.</main>", r.PathValue("id"))
	})
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /form", func(w http.ResponseWriter, r *http.Request) {
		field, err := m.Field(r.Context(), "order")
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.form = `<!doctype html><link rel=icon href=data:,><title>Order</title><main><form method=post action=/orders>` + field + `<input name=item value=7><button>Order</button></form></main>`
		fmt.Fprint(w, s.form)
	})
	mux.HandleFunc("GET /tab", func(w http.ResponseWriter, _ *http.Request) { // the browser's own copy of the page
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprint(w, s.form)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// until waits for an address that contains part.
func (b *tab) until(part string) {
	b.Helper()
	for !strings.Contains(b.address(), part) {
		if b.ctx.Err() != nil {
			b.stuck(b.ctx.Err())
		}
	}
}

func TestFormWithoutScript(t *testing.T) {
	t.Parallel()
	t.Run("[http/H43] each page of a form is one intent, with JavaScript off", func(t *testing.T) {
		t.Parallel()
		s, b := newShop(t), openTab(t, view{noJS: true})
		ended := func(what, path string, orders int64) {
			t.Helper()
			b.shows("Your order has number " + strings.TrimPrefix(path, "/orders/"))
			if at := b.address(); at != s.URL+path || s.orders.Load() != orders {
				t.Errorf("%s: at %s with %d orders, want %s and %d", what, at, s.orders.Load(), path, orders)
			}
		}
		b.open(s.URL + "/form")
		b.follow("button")
		ended("submit", "/orders/1", 1)
		b.do(chromedp.Reload())
		ended("reload", "/orders/1", 1)
		b.do(chromedp.NavigateBack())
		b.follow("button")
		ended("back, and submit again", "/orders/1", 1)
		b.open(s.URL + "/tab")
		b.follow("button")
		ended("a second tab of the page", "/orders/1", 1)
		b.open(s.URL + "/form")
		b.follow("button")
		ended("a page opened anew", "/orders/2", 2)
		b.open(s.URL + "/form")
		b.do(chromedp.DoubleClick("button"))
		b.until("/orders/")
		ended("double submit", "/orders/3", 3)

		b.open(s.URL + "/form")
		s.late.Store(int64(2 * time.Hour))
		b.follow("button")
		b.expect("400")
		if text := b.text("body"); !strings.Contains(text, "open the form again") || s.orders.Load() != 3 {
			t.Errorf("a lapsed key: %d orders, %s", s.orders.Load(), text)
		}
	})
}
