package httpcheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

// order says to a child what to serve and where to die.
type order struct {
	Kind, DSN, Schema string
	Die               string // one of the moments of TestKilled, or ""
}

const orderEnv = "HTTPCHECK_ORDER"

func TestMain(m *testing.M) {
	if text := os.Getenv(orderEnv); text != "" {
		var o order
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := serve(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// die ends this process as a power cut would.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// answerBytes is the body of the service's answers: long enough to be cut in the middle.
func answerBytes() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 8<<10) }

// serve is a service with one guarded operation; it prints its address and ends with its standard input.
func serve(o order) error {
	ctx := context.Background()
	w := &world{kind: o.Kind, dsn: o.DSN, schema: o.Schema}
	s, err := w.open(ctx, 10)
	if err != nil {
		return err
	}
	defer s.close()
	h, _, err := service(&dyingStore{Store: s.store, InTxer: s.store.(storeWithTx), when: o.Die}, s, o.Die)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, dyingAnswers(h, o.Die))
}

// service is the guarded handler: one row for the key, 201, a long body.
func service(store idempo.Store, s *opened, when string) (http.Handler, *idemhttp.Middleware, error) {
	engine, err := idempo.New(store, idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}, AcquireTimeout: 10 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	m, err := idemhttp.New(engine, idemhttp.Config{TenantFunc: func(*http.Request) (string, error) {
		if when == "before claim" {
			die()
		}
		return "acct_1", nil
	}})
	if err != nil {
		return nil, nil, err
	}
	h, err := m.Wrap(idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}, idemhttp.Rules{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if when == "after claim" {
			die()
		}
		if err := s.effect(r.Context(), r.Header.Get("Idempotency-Key")); err != nil {
			idemhttp.SetError(r.Context(), err)
			http.Error(w, "no effect", http.StatusInternalServerError)
			return
		}
		if when == "after effect" {
			die()
		}
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answerBytes())
	}))
	return h, m, err
}

// storeWithTx is what every store of this package is.
type storeWithTx interface {
	idempo.Store
	idempo.Transactor
	idempo.Joiner
}

// InTxer has what dyingStore does not embed twice.
type InTxer interface {
	idempo.Transactor
	idempo.Joiner
}

// dyingStore ends the process after the result is written, or after the commit.
type dyingStore struct {
	idempo.Store
	InTxer
	when string
}

func (d *dyingStore) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	rec, err := d.Store.Complete(ctx, p)
	if d.when == "after result" {
		die()
	}
	return rec, err
}

func (d *dyingStore) InTx(ctx context.Context, fn func(context.Context) error) error {
	err := d.InTxer.InTx(ctx, fn)
	if err == nil && d.when == "after COMMIT" {
		die()
	}
	return err
}

// dyingAnswers ends the process when half of an answer has left.
func dyingAnswers(next http.Handler, when string) http.Handler {
	if when != "half the answer sent" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&halfWriter{w}, r) })
}

type halfWriter struct{ http.ResponseWriter }

func (h *halfWriter) Write(p []byte) (int, error) {
	_, _ = h.ResponseWriter.Write(p[:len(p)/2])
	_ = http.NewResponseController(h.ResponseWriter).Flush()
	die()
	return 0, io.ErrShortWrite
}

// process is a child that serves.
type process struct {
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

// start runs this binary as a service and waits for its address.
func (w *world) start(t *testing.T, o order) *process {
	t.Helper()
	if o.Kind = w.kind; o.DSN == "" {
		o.DSN = w.dsn
	}
	o.Schema = w.schema
	text, err := json.Marshal(o)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), orderEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &process{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() { defer close(p.ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = stdin.Close(); <-p.ended })
	if err != nil {
		t.Fatalf("the service did not start: %v", err)
	}
	p.url = strings.TrimSpace(line)
	return p
}

// reply is what a caller got: an error is a connection that broke.
type reply struct {
	status int
	said   string
	body   string
	err    error
}

func ask(ctx context.Context, client *http.Client, url, key string) (r reply) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/pay", strings.NewReader(`{"amount":12}`))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header.Get("Idempotency-Status"), string(body), err}
}

// onePass is a TCP relay. Once armed it forwards until it has forwarded a COMMIT, then calls seen and forwards no answer.
func onePass(t *testing.T, target string, seen func()) (addr string, arm func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var armed, done atomic.Bool
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				defer func() { _ = client.Close(); _ = server.Close() }()
				b := make([]byte, 64<<10)
				for {
					n, err := client.Read(b)
					commit := bytes.Contains(bytes.ToLower(b[:n]), []byte("commit\x00"))
					if commit && armed.Load() && !done.Swap(true) {
						_, _ = server.Write(b[:n])
						seen()
						return
					}
					if _, werr := server.Write(b[:n]); err != nil || werr != nil {
						return
					}
				}
			}()
			go func() {
				b := make([]byte, 64<<10)
				for {
					n, err := server.Read(b)
					if done.Load() || err != nil {
						_ = client.Close()
						return
					}
					if _, err := client.Write(b[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), func() { armed.Store(true) }
}
