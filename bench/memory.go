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
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// child is the real binary, serving in a process of its own so that its memory can be read from outside.
type child struct {
	cmd  *exec.Cmd
	addr string
	dir  string
}

const gib = 1 << 30

// startGateway builds cmd/idempo and serves upstream with limits raised for gib-sized bodies.
func startGateway(ctx context.Context, upstream string) (*child, error) {
	dir, err := os.MkdirTemp("", "idempo-bench")
	if err != nil {
		return nil, err
	}
	c := &child{dir: dir}
	bin := filepath.Join(dir, "idempo")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/idempo/idempo/cmd/idempo").CombinedOutput(); err != nil {
		c.stop()
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.addr = ln.Addr().String()
	_ = ln.Close()
	config := fmt.Sprintf(`version: 1
listen: {gateway: %q, admin: "127.0.0.1:0"}
limits: {connections_per_peer: 20000}
gateway:
  tenant: {global: true}
  timeouts: {read_header: 5m, read_body: 5m}
  upstreams:
    pay: {urls: [%q]}
  routes:
    - {match: "/", upstream: pay}
    - {match: "POST /v1/payments", upstream: pay, operation: pay, max_body: 2GiB, max_spool: 2GiB, max_run: 5m}
`, c.addr, upstream)
	path := filepath.Join(dir, "idempo.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, bin, "serve", "--config", path, "--data-dir", dir)
	var log bytes.Buffer
	c.cmd.Stderr, c.cmd.Stdout = &log, &log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		conn, err := net.Dial("tcp", c.addr)
		if err == nil {
			_ = conn.Close()
			return c, nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	c.stop()
	return nil, fmt.Errorf("idempo serve did not listen: %s", log.String())
}

func (c *child) stop() {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
	_ = os.RemoveAll(c.dir)
}

// memory is a line of the child's /proc status in bytes: VmRSS now, VmHWM at its highest.
func (c *child) memory(line string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, errors.New("resident memory is read from /proc: not here")
	}
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(l, line+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no " + line)
}

// gatewayMemory measures what slow clients and huge bodies cost the gateway's process.
func gatewayMemory(ctx context.Context, _ settings) ([]result, error) {
	huge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Query().Get("huge") != "" {
			w.Header().Set("Content-Length", strconv.Itoa(gib))
			_, _ = io.Copy(w, io.LimitReader(zeros{}, gib))
			return
		}
		pay(w, r)
	})
	upstream, err := serve(huge, nil)
	if err != nil {
		return nil, err
	}
	defer upstream.close()
	c, err := startGateway(ctx, upstream.url)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	out, err := c.hugeBodies(ctx) // first: what is read is the highest mark of the process's life
	if err != nil {
		return nil, err
	}
	more, err := c.slowClients(5000)
	return append(more, out...), err
}

func (c *child) slowClients(n int) ([]result, error) {
	before, err := c.memory("VmRSS")
	if err != nil {
		return nil, err
	}
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for i := range n {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
		if _, err := fmt.Fprintf(conn, "POST /v1/payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: slow-%d\r\nContent-Length: 100\r\n\r\n{", i); err != nil {
			return nil, err
		}
	}
	for range 3 { // a byte a second
		time.Sleep(time.Second)
		for _, conn := range conns {
			if _, err := conn.Write([]byte(" ")); err != nil {
				return nil, fmt.Errorf("a slow client was cut: %w", err)
			}
		}
	}
	after, err := c.memory("VmRSS")
	per := float64(after-before) / float64(n) / 1024
	return []result{{"P53", "gateway: resident memory per slow client, 5,000 of them in the middle of a body", per, "KiB", "≤ 40", per <= 40, ""}}, err
}

func (c *child) hugeBodies(ctx context.Context) ([]result, error) {
	before, err := c.memory("VmRSS")
	if err != nil {
		return nil, err
	}
	var out []result
	for _, what := range []string{"upload", "answer"} {
		var body io.Reader = strings.NewReader("{}")
		url := "http://" + c.addr + "/v1/payments"
		if what == "upload" {
			body = io.LimitReader(zeros{}, gib)
		} else {
			url += "?huge=1"
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Idempotency-Key", "huge-"+what)
		req.Header.Set("Content-Type", "application/octet-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		n, err := io.Copy(io.Discard, bufio.NewReader(res.Body))
		_ = res.Body.Close()
		if err != nil || what == "answer" && n != gib || res.StatusCode >= 300 {
			return nil, fmt.Errorf("%s: status %d, %d bytes: %w", what, res.StatusCode, n, err)
		}
		top, err := c.memory("VmHWM")
		if err != nil {
			return nil, err
		}
		mib := float64(top-before) / (1 << 20)
		out = append(out, result{"P53", "gateway: peak resident memory over the idle one, a keyed 1 GiB " + what, max(mib, 0), "MiB", "≤ 32", mib <= 32, ""})
	}
	return out, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
