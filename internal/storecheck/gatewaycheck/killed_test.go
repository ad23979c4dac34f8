package gatewaycheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/gateway"
	"github.com/idempo/idempo/sqlite"
)

const victimFile, victimUpstream, victimPolicy = "GATEWAYCHECK_FILE", "GATEWAYCHECK_UPSTREAM", "GATEWAYCHECK_POLICY"

// serve serves a gateway over the SQLite file and gives its address; both end when ctx does.
func serve(ctx context.Context, file, upstream, policy string) (string, error) {
	store, err := sqlite.Open(ctx, "sqlite", file, sqlite.Options{})
	if err != nil {
		return "", err
	}
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: bytes.Repeat([]byte("0123456789abcdef"), 2)}}})
	if err != nil {
		return "", errors.Join(err, store.Close())
	}
	route := gateway.Route{Match: "POST /v1/payments", Upstream: "up", Operation: "pay", OnCrash: policy, Lease: time.Second}
	if policy == "rerun" {
		route.UpstreamHonoursKey, route.UpstreamKey = true, "derive"
	}
	g, err := gateway.New(engine, gateway.Config{Tenant: gateway.Tenant{Global: true},
		Upstreams: map[string]gateway.Upstream{"up": {URLs: []string{upstream}}}, Routes: []gateway.Route{route}})
	if err != nil {
		return "", errors.Join(err, store.Close())
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", errors.Join(err, store.Close())
	}
	srv := g.Server()
	go func() { _ = srv.Serve(g.Listener(ln)) }()
	context.AfterFunc(ctx, func() { _ = srv.Close(); g.Close(); _ = store.Close() })
	return ln.Addr().String(), nil
}

// TestVictim is the process that TestKilled kills. By itself it does nothing.
func TestVictim(t *testing.T) {
	file := os.Getenv(victimFile)
	if file == "" {
		return
	}
	address, err := serve(t.Context(), file, os.Getenv(victimUpstream), os.Getenv(victimPolicy))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("serving", address)
	select {}
}

// book is an upstream that makes payments, and may do something at a moment of the first call.
type book struct {
	mu       sync.Mutex
	calls    int
	keys     map[string]int
	received func() // a whole request is there, and acted on
	replied  func() // its answer has left
}

func (b *book) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		b.mu.Lock()
		b.calls++
		b.keys[req.Header.Get("Idempotency-Key")]++
		received, replied := b.received, b.replied
		b.received, b.replied = nil, nil
		b.mu.Unlock()
		if received != nil {
			received()
		}
		if _, err := io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"id\":7}"); err != nil {
			return
		}
		if replied != nil {
			replied()
		}
	}
}

// pay sends the one payment and gives status, marker and problem code; status 0: no whole answer.
func pay(address string) (status int, mark, code string) {
	req, err := http.NewRequest(http.MethodPost, "http://"+address+"/v1/payments", strings.NewReader(`{"amount":1200}`))
	if err != nil {
		return 0, "", ""
	}
	req.Header.Set("Idempotency-Key", "order-81")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", ""
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, "", ""
	}
	var problem struct{ Code string }
	_ = json.Unmarshal(body, &problem) // an answer of the upstream has none
	return res.StatusCode, res.Header.Get("Idempotency-Status"), problem.Code
}

func TestKilled(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"hold", "rerun"} {
		for _, point := range []string{"after the claim", "after forwarding", "after the reply"} {
			t.Run("[http/P11] kill -9 "+point+", "+policy, func(t *testing.T) {
				t.Parallel()
				killed(t, policy, point)
			})
		}
	}
}

func killed(t *testing.T, policy, point string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	file := filepath.Join(t.TempDir(), "gateway.db")
	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), victimFile+"="+file, victimUpstream+"=http://"+ln.Addr().String(), victimPolicy+"="+policy)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "serving ")
	if err != nil || !ok {
		t.Fatalf("the victim said %q: %v", line, err)
	}
	kill := sync.OnceFunc(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	t.Cleanup(kill)
	b := &book{keys: map[string]int{}}
	switch point {
	case "after forwarding":
		b.received = kill
	case "after the reply":
		b.replied = kill
	}
	first := true
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if first && point == "after the claim" { // the claim is committed, and nothing that was sent is acted on
				first = false
				kill()
				_ = c.Close()
				continue
			}
			go b.serve(c)
		}
	}()
	pay(address)
	kill()
	other, err := serve(t.Context(), file, "http://"+ln.Addr().String(), policy)
	if err != nil {
		t.Fatal(err)
	}
	var status int
	var mark, code string
	for deadline := time.Now().Add(20 * time.Second); ; { // until the lease of the dead is over
		if status, mark, code = pay(other); code != "in_progress" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a crashed owner blocks its key for ever")
		}
		<-time.After(50 * time.Millisecond)
	}
	b.mu.Lock()
	calls, keys := b.calls, len(b.keys)
	b.mu.Unlock()
	kept := point == "after the reply" && status == http.StatusCreated && mark == "replayed" // it had just been stored
	switch {
	case kept && calls == 1:
	case policy == "hold":
		most := 1
		if point == "after the claim" {
			most = 0
		}
		if status != http.StatusConflict || code != "in_doubt" || calls != most {
			t.Errorf("%d %q %q after %d calls", status, mark, code, calls)
		}
	default:
		want := 2
		if point == "after the claim" {
			want = 1
		}
		if status != http.StatusCreated || mark != "executed" || calls != want || keys != 1 {
			t.Errorf("%d %q %q after %d calls with %d keys", status, mark, code, calls, keys)
		}
	}
}
