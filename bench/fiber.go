package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

// fiberPeer compares idemhttp on memstore with Fiber v3's idempotency middleware on its memory storage: the same small
// handler behind real sockets, first calls and replays. It also counts what each does with a body changed under one key.
func fiberPeer(ctx context.Context, s settings) ([]result, error) {
	const clients, keys = 16, 200
	ours, err := idemhttpOnMemory()
	if err != nil {
		return nil, err
	}
	mine, err := serve(ours, nil)
	if err != nil {
		return nil, err
	}
	defer mine.close()
	theirs, stop, err := fiberApp()
	if err != nil {
		return nil, err
	}
	defer stop()
	client := &site{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	key := func(n int64) string { return fmt.Sprintf("%036d", n) } // Fiber demands 36 characters
	for i := range int64(keys) {
		if err := errors.Join(client.post(ctx, mine.url, key(i)), client.post(ctx, theirs, key(i))); err != nil {
			return nil, err
		}
	}
	at := func(base string, fresh bool) contender {
		return contender{base, func(ctx context.Context, n int64) error {
			if !fresh {
				n %= keys
			} else {
				n += 1 << 32
			}
			return client.post(ctx, base, key(n))
		}}
	}
	rates, err := compare(ctx, s, clients, at(mine.url, true), at(theirs, true), at(mine.url, false), at(theirs, false))
	if err != nil {
		return nil, err
	}
	a, b, err := changedBody(ctx, client.client, mine.url, theirs)
	if err != nil {
		return nil, err
	}
	first, replay := ratio(rates[0], rates[1]), ratio(rates[2], rates[3])
	return []result{
		{"peer", "idemhttp on memstore, net/http ÷ Fiber v3 idempotency, fasthttp: first calls, 16 clients", first, "", "(no bar)", true, note([]string{"idemhttp", "Fiber"}, rates[:2])},
		{"peer", "the same: replays", replay, "", "(no bar)", true, note([]string{"idemhttp", "Fiber"}, rates[2:])},
		{"peer", "another body under a used key: answered as if it were the first request", 0, "of 100", "0", a == 0, fmt.Sprintf("idemhttp %d of 100, Fiber v3 %d of 100", a, b)},
	}, nil
}

func idemhttpOnMemory() (http.Handler, error) {
	engine, err := idempo.New(memstore.New(memstore.Options{MaxRecords: 10_000_000}), idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
	if err != nil {
		return nil, err
	}
	m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
	if err != nil {
		return nil, err
	}
	return m.Wrap(idempo.Operation{Name: "pay", Guard: idempo.GuardLeased}, idemhttp.Rules{}, http.HandlerFunc(pay))
}

func fiberApp() (base string, stop func(), err error) {
	app := fiber.New()
	app.Use(idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key"}))
	app.Post("/v1/payments", func(c fiber.Ctx) error {
		c.Set("Content-Type", "application/json")
		return c.Status(http.StatusCreated).SendString(answerBody)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() { _ = app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }()
	return "http://" + ln.Addr().String(), func() { _ = app.ShutdownWithTimeout(time.Second) }, nil
}

// changedBody sends 100 pairs of different bodies under one key each, and counts those whose second got a 201.
func changedBody(ctx context.Context, client *http.Client, bases ...string) (a, b int64, err error) {
	var counts [2]atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for i, base := range bases {
		wg.Go(func() {
			for n := range 100 {
				for _, amount := range []string{"1200", "9900"} {
					req, _ := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/payments", strings.NewReader(`{"amount":`+amount+`}`))
					req.Header.Set("Content-Type", "application/json")
					req.Header.Set("Idempotency-Key", strings.Repeat("c", 32)+fmt.Sprintf("%04s", strconv.Itoa(n)))
					res, err := client.Do(req)
					if err != nil {
						failed.Store(&err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					if amount == "9900" && res.StatusCode == http.StatusCreated {
						counts[i].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		err = *e
	}
	return counts[0].Load(), counts[1].Load(), err
}
