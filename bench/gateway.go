package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/idempo/idempo/gateway"
	"github.com/idempo/idempo/sqlite"
)

// site is an upstream with a gateway on SQLite and a plain reverse proxy before it.
type site struct {
	upstream, gateway, proxy string
	client                   *http.Client
	close                    func()
}

func openSite(ctx context.Context, clients int) (*site, error) {
	dir, err := os.MkdirTemp("", "idempo-bench")
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, "sqlite", filepath.Join(dir, "gateway.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	engine, err := engineOver(store)
	if err != nil {
		return nil, err
	}
	upstream, err := serve(http.HandlerFunc(pay), nil)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(upstream.url)
	if err != nil {
		return nil, err
	}
	g, err := gateway.New(engine, gateway.ForUpstream(upstream.url))
	if err != nil {
		return nil, err
	}
	guarded, err := serve(g, g)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	bare, err := serve(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() }, Transport: transport}, nil)
	if err != nil {
		return nil, err
	}
	s := &site{upstream: upstream.url, gateway: guarded.url, proxy: bare.url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	s.close = func() {
		for _, l := range []*server{guarded, bare, upstream} {
			l.close()
		}
		g.Close()
		_ = store.Close()
		_ = os.RemoveAll(dir)
	}
	return s, nil
}

type server struct {
	url   string
	close func()
}

// serve serves h on a loopback port; with a gateway, as the binary does.
func serve(h http.Handler, g *gateway.Gateway) (*server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: h}
	s := &server{url: "http://" + ln.Addr().String(), close: func() { _ = srv.Close() }}
	if g != nil {
		srv, ln = g.Server(), g.Listener(ln)
		s.close = func() { _ = srv.Close() }
	}
	go func() { _ = srv.Serve(ln) }()
	return s, nil
}

// pay is a small service: it reads the body and answers a few bytes of JSON.
func pay(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answerBody)
}

func (s *site) post(ctx context.Context, base, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/payments", strings.NewReader(`{"amount":1200,"currency":"EUR"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return err
}

func proxied(ctx context.Context, s settings) ([]result, error) {
	const clients, keys = 16, 200
	site, err := openSite(ctx, clients)
	if err != nil {
		return nil, err
	}
	defer site.close()
	for i := range keys {
		if err := site.post(ctx, site.gateway, "known-"+strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	names := []string{"httputil.ReverseProxy", "replay", "pass-through", "first call"}
	rates, err := compare(ctx, s, clients,
		contender{names[0], func(ctx context.Context, _ int64) error { return site.post(ctx, site.proxy, "") }},
		contender{names[1], func(ctx context.Context, n int64) error {
			return site.post(ctx, site.gateway, "known-"+strconv.FormatInt(n%keys, 10))
		}},
		contender{names[2], func(ctx context.Context, _ int64) error { return site.post(ctx, site.gateway, "") }},
		contender{names[3], func(ctx context.Context, n int64) error {
			return site.post(ctx, site.gateway, "new-"+strconv.FormatInt(n, 10))
		}})
	if err != nil {
		return nil, err
	}
	replay, pass, first := ratio(rates[1], rates[0]), ratio(rates[2], rates[0]), ratio(rates[3], rates[0])
	return []result{
		{"P50", "gateway on SQLite: keyed replays ÷ unguarded httputil.ReverseProxy, 16 clients", replay, "", "≥ 1.2", replay >= 1.2, note(names, rates)},
		{"P51", "gateway: unkeyed pass-through ÷ that proxy", pass, "", "≥ 0.95", pass >= 0.95, ""},
		{"–", "gateway: first calls ÷ that proxy (two durable commits more)", first, "", "(no bar)", true, ""},
	}, nil
}
