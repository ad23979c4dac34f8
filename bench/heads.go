package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/idempo/idempo/gateway"
)

// headCheck serves one pass-through gateway on two listeners, one with the connection head check and one without.
func headCheck(ctx context.Context, s settings) ([]result, error) {
	var servers []*http.Server
	defer func() {
		for _, srv := range servers {
			_ = srv.Close()
		}
	}()
	start := func(srv *http.Server, wrap func(net.Listener) net.Listener) (string, error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		servers = append(servers, srv)
		go func() { _ = srv.Serve(wrap(ln)) }()
		return ln.Addr().String(), nil
	}
	bare := func(ln net.Listener) net.Listener { return ln }
	answer := bytes.Repeat([]byte("x"), 256)
	upstream, err := start(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(answer)
	})}, bare)
	if err != nil {
		return nil, err
	}
	g, err := gateway.New(nil, gateway.Config{
		Upstreams: map[string]gateway.Upstream{"up": {URLs: []string{"http://" + upstream}, IdleTimeout: 90e9}},
		Routes:    []gateway.Route{{Match: "/", Upstream: "up"}},
	})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	checked, err := start(g.Server(), g.Listener)
	if err != nil {
		return nil, err
	}
	unchecked, err := start(g.Server(), bare)
	if err != nil {
		return nil, err
	}
	const body = `{"amount":1200}`
	request := "POST /v1/other HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.5\r\n" +
		"Cookie: session=0123456789abcdef0123456789abcdef\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	const clients = 16
	names := []string{"with", "without"}
	rates, err := compare(ctx, s, clients, keptCaller(names[0], checked, request), keptCaller(names[1], unchecked, request))
	if err != nil {
		return nil, err
	}
	r := ratio(rates[0], rates[1])
	return []result{{"SEC93", "gateway: pass-through with the connection head check ÷ without, keep-alive, 16 clients", r, "", "≥ 0.98", r >= 0.98, note(names, rates)}}, nil
}

// keptCaller sends one request over kept connections and reads each whole answer, with as little work of its own as it can.
func keptCaller(name, address, request string) contender {
	type link struct {
		net.Conn
		r *bufio.Reader
	}
	idle := make(chan *link, 1024)
	return contender{name, func(context.Context, int64) error {
		var l *link
		select {
		case l = <-idle:
		default:
			c, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			l = &link{c, bufio.NewReader(c)}
		}
		if _, err := io.WriteString(l, request); err != nil {
			return err
		}
		length := -1
		for first := true; ; first = false {
			line, err := l.r.ReadSlice('\n')
			if err != nil {
				return err
			}
			if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
				return fmt.Errorf("%s: %s", name, bytes.TrimSpace(line))
			}
			if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
					return err
				}
			}
			if len(line) == 2 {
				break
			}
		}
		if length < 0 {
			return errors.New("an answer without length")
		}
		if _, err := l.r.Discard(length); err != nil {
			return err
		}
		idle <- l
		return nil
	}}
}
