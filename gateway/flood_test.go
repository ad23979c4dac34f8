package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// h2client speaks raw frames to a gateway.
type h2client struct {
	t *testing.T
	h2peer
	ended chan struct{} // closed when the peer has ended the connection
}

func dialH2(t *testing.T, address string, a *authority) *h2client {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: a.pool(), NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(60 * time.Second)) // a hang fails instead
	io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	h := &h2client{t: t, h2peer: h2peer{c}, ended: make(chan struct{})}
	h.frame(4, 0, 0, nil)
	go func() {
		defer close(h.ended)
		io.Copy(io.Discard, bufio.NewReader(c))
	}()
	return h
}

// headers are those of a keyed payment.
func (h *h2client) headers(key string) []byte {
	var b bytes.Buffer
	b.Write([]byte{0x83, 0x87, 0x04, 12})
	b.WriteString("/v1/payments")
	b.Write([]byte{0x01, 1, 'h', 0x00, 15})
	b.WriteString("idempotency-key")
	b.WriteByte(byte(len(key)))
	b.WriteString(key)
	return b.Bytes()
}

// gone waits until the peer has ended the connection.
func (h *h2client) gone(what string) {
	h.t.Helper()
	select {
	case <-h.ended:
	case <-time.After(30 * time.Second):
		h.t.Errorf("%s: the connection is still open", what)
	}
}

func (h *h2client) alive() bool {
	select {
	case <-h.ended:
		return false
	default:
		return true
	}
}

func TestFloods(t *testing.T) {
	// Not parallel: it looks at the memory of the process.
	a := newAuthority(t)
	a.issue("server", 2, nil)
	up, calls := counting(t, nil)
	c := payTo(nil, up.URL)
	c.TLS = TLS{Cert: a.file("server.pem"), Key: a.file("server.key")}
	g := newWorld(t).gate(c, nil)
	pay := func(key string) (int, string) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		req, _ := http.NewRequest("POST", "https://"+g.address+"/v1/payments", strings.NewReader("abc"))
		req.Header.Set("Idempotency-Key", key)
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode, res.Header.Get("Idempotency-Status")
	}
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	before := memory()
	t.Run("[security/SEC65] a stream that is reset before its body is complete claims nothing", func(t *testing.T) {
		h := dialH2(t, g.address, a)
		h.frame(1, 4, 1, h.headers("cut"))
		h.frame(0, 0, 1, []byte("ab"))
		h.frame(3, 0, 1, []byte{0, 0, 0, 8})
		h.frame(1, 4, 3, h.headers("whole"))
		h.frame(0, 1, 3, []byte("abc"))
		eventually(t, "the whole one", func() bool { return calls.count() == 1 })
		if status, mark := pay("cut"); status != 200 || mark != "executed" {
			t.Errorf("the key is spent: %d %s", status, mark)
		}
	})
	t.Run("[security/SEC65] rapid reset", func(t *testing.T) {
		h := dialH2(t, g.address, a)
		for i := uint32(0); i < 20_000 && h.alive(); i++ {
			h.frame(1, 4, 2*i+1, h.headers("reset"))
			h.frame(3, 0, 2*i+1, []byte{0, 0, 0, 8})
		}
		h.gone("rapid reset")
	})
	t.Run("[security/SEC65] CONTINUATION without end", func(t *testing.T) {
		h := dialH2(t, g.address, a)
		h.frame(1, 0, 1, h.headers("continued"))
		for i := 0; i < 1_000_000 && h.alive(); i++ {
			h.frame(9, 0, 1, []byte{0x00, 1, 'a', 1, 'b'})
		}
		h.gone("CONTINUATION")
		h = dialH2(t, g.address, a)
		h.frame(1, 0, 1, h.headers("continued"))
		for i := 0; i < 1_000_000 && h.alive(); i++ {
			h.frame(9, 0, 1, nil)
		}
		h.gone("empty CONTINUATION")
	})
	t.Run("[security/SEC65] empty DATA", func(t *testing.T) {
		h := dialH2(t, g.address, a)
		h.frame(1, 4, 1, h.headers("empty"))
		for i := 0; i < 1_000_000 && h.alive(); i++ {
			h.frame(0, 0, 1, nil)
		}
		h.gone("empty DATA")
	})
	t.Run("[security/SEC65] 10,000 streams", func(t *testing.T) {
		h := dialH2(t, g.address, a)
		for i := uint32(0); i < 10_000 && h.alive(); i++ {
			h.frame(1, 4, 2*i+1, h.headers(fmt.Sprint("s", i)))
		}
		h.gone("open streams")
	})
	if after := memory(); after > before+64<<20 {
		t.Errorf("memory grew from %d to %d MiB", before>>20, after>>20)
	}
	if status, mark := pay("after"); status != 200 || mark != "executed" || calls.count() != 3 {
		t.Errorf("afterwards: %d %s, %d calls", status, mark, calls.count())
	}
}

func TestSlowClients(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC64] slow heads, slow bodies, readers that read nothing", func(t *testing.T) {
		const each = 50
		var paid atomic.Int32
		up, _ := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/big":
				w.Write(make([]byte, 8<<20))
			case "/v1/payments":
				paid.Add(1)
			}
		}))
		c := payTo(nil, up.URL)
		c.Timeouts = Timeouts{ReadHeader: time.Second, ReadBody: time.Second, Write: time.Second}
		g := newWorld(t).gate(c, nil)
		var conns []*raw
		for i := range each {
			for _, start := range []string{"POST /v1/payments HTTP/1.1\r\nHo", "POST /v1/payments HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\nIdempotency-Key: k" + fmt.Sprint(i) + "\r\n\r\n{",
				"POST /other HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{", "GET /big HTTP/1.1\r\nHost: h\r\n\r\n"} {
				conn := dialRaw(t, g.address)
				conn.send(start)
				conns = append(conns, conn)
			}
		}
		stop, dripped := make(chan struct{}), make(chan struct{})
		go func() { // a byte a tick for each: no read of theirs ever takes long
			defer close(dripped)
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-stop:
					return
				}
				for i, conn := range conns {
					if i%4 != 3 {
						io.WriteString(conn, "s")
					}
				}
			}
		}()
		if r := g.pay("quick"); r.StatusCode != 200 {
			t.Errorf("another client: %d", r.StatusCode)
		}
		for i, conn := range conns {
			if i%4 == 3 {
				continue // reading would help it
			}
			if _, err := io.Copy(io.Discard, conn.r); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Fatalf("client %d is still connected", i)
			}
		}
		close(stop)
		<-dripped
		eventually(t, "no reader is served any more", func() bool {
			buf := make([]byte, 1<<20)
			return strings.Count(string(buf[:runtime.Stack(buf, true)]), "gateway.(*passage).ServeHTTP") == 0
		})
		for i := range 5 {
			if r := g.pay(fmt.Sprintf("k%d", i)); r.mark() != "executed" {
				t.Errorf("a slow client's key is spent: %s", r.mark())
			}
		}
		if paid.Load() != 6 {
			t.Errorf("%d payments", paid.Load())
		}
	})
}

func TestPeers(t *testing.T) {
	t.Parallel()
	up, _ := counting(t, nil)
	for name, change := range map[string]func(*Config){"a stranger": func(*Config) {}, "a trusted proxy": func(c *Config) { c.TrustedProxies = []string{"127.0.0.1"} }} {
		c := passTo(up.URL)
		c.Limits.ConnectionsPerPeer = 3
		change(&c)
		address := serve(t, passing(t, c))
		served := 0
		var all []*raw
		for range 5 {
			r := dialRaw(t, address)
			r.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if res, _ := r.answer(); res != nil {
				served++
			}
			all = append(all, r)
		}
		if want := map[string]int{"a stranger": 3, "a trusted proxy": 5}[name]; served != want {
			t.Errorf("%s: %d of 5 connections served, want %d", name, served, want)
		}
		all[0].Close()
		eventually(t, "room for another", func() bool {
			r := dialRaw(t, address)
			r.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			res, _ := r.answer()
			return res != nil
		})
	}
}
