package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

// shop is an application on PostgreSQL with an outbox, in a database of its own, and a shell whose commands work there.
type shop struct {
	*shell
	dsn string
	db  *sql.DB
	st  *postgres.Store
	box *outbox.Outbox
}

func openShop(t *testing.T) *shop {
	t.Helper()
	root := os.Getenv("IDEMPO_TEST_POSTGRES")
	if root == "" {
		root = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	admin, err := sql.Open("pgx", root)
	if err == nil {
		t.Cleanup(func() { _ = admin.Close() })
		err = admin.PingContext(t.Context())
	}
	if err != nil {
		text := "no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one with: docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	name := "shop_" + strings.ToLower(rand.Text())
	if _, err := admin.ExecContext(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.WithoutCancel(t.Context()), "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	at := strings.LastIndex(strings.SplitN(root, "?", 2)[0], "/")
	dsn := root[:at+1] + name
	if _, query, ok := strings.Cut(root, "?"); ok {
		dsn += "?" + query
	}
	s := &shop{shell: newShell(t), dsn: dsn}
	s.env = append(s.env, "IDEMPO_STORE="+dsn)
	if s.db, err = sql.Open("pgx", dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	if err := postgres.Migrate(t.Context(), s.db, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.st, err = postgres.New(t.Context(), s.db, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.box, err = outbox.New(s.st, outbox.Options{Source: "/shop/orders"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// append commits events of a topic and key, one transaction each, and returns their ids.
func (s *shop) append(topic, key string, payloads ...string) (ids []string) {
	s.t.Helper()
	for _, p := range payloads {
		err := s.box.Do(s.t.Context(), func(ctx context.Context) error {
			one, err := s.box.Append(ctx, outbox.Event{Topic: topic, Key: key, Type: "T", ContentType: "application/json", Payload: []byte(p)})
			ids = append(ids, one...)
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return ids
}

// judge is a publisher that refuses what it is told to.
type judge struct {
	mu     sync.Mutex
	refuse func(outbox.Delivery) error
	took   []string
}

func (j *judge) Publish(_ context.Context, p outbox.PublishParams) {
	for i, d := range p.Events {
		j.mu.Lock()
		var err error
		if j.refuse != nil {
			err = j.refuse(d)
		}
		if err == nil {
			j.took = append(j.took, string(d.Payload))
		}
		j.mu.Unlock()
		p.Done(i, err)
	}
}

// drain publishes what is there to j.
func (s *shop) drain(j *judge) {
	s.t.Helper()
	r, err := outbox.NewRelay(s.st, j, outbox.RelayOptions{})
	if err == nil {
		_, err = r.Once(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// once runs idempo relay --once to stdout, and returns the payloads in order.
func (s *shop) once(code int, args ...string) (payloads []string, r result) {
	s.t.Helper()
	r = s.run(append([]string{"relay", "--to", "stdout:", "--once"}, args...)...)
	if r.code != code {
		s.t.Fatalf("exit %d, want %d: %s%s", r.code, code, r.out, r.err)
	}
	for line := range strings.Lines(r.out) {
		var e struct{ Data json.RawMessage }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err, line)
		}
		payloads = append(payloads, string(e.Data))
	}
	return payloads, r
}

// same wants payloads in order.
func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
}

// running is a relay at work on the shell's store.
type running struct {
	t       *testing.T
	signals chan os.Signal
	code    chan int
	out     *io.PipeReader
	lines   chan string
	err     buffer
}

func (s *shop) relay(args ...string) *running {
	s.t.Helper()
	out, in := io.Pipe()
	r := &running{t: s.t, signals: make(chan os.Signal, 2), code: make(chan int, 1), out: out, lines: make(chan string, 10000)}
	go func() {
		r.code <- Run(Process{Args: append([]string{"relay"}, args...), Env: s.env, Dir: s.dir, In: strings.NewReader(""), Out: in, Err: &r.err, Signals: r.signals})
		_ = in.Close()
	}()
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.lines <- lines.Text()
		}
		close(r.lines)
	}()
	return r
}

// next returns the payload of the next line.
func (r *running) next() string {
	r.t.Helper()
	select {
	case line, ok := <-r.lines:
		if !ok {
			r.t.Fatalf("the relay ended: %s", r.err.String())
		}
		var e struct{ Data json.RawMessage }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatal(err, line)
		}
		return string(e.Data)
	case <-time.After(30 * time.Second):
		r.t.Fatalf("nothing is published: %s", r.err.String())
	}
	return ""
}

// says waits until the relay has said a text.
func (r *running) says(want string) {
	r.t.Helper()
	for {
		text, more := r.err.next()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-more:
		case <-time.After(30 * time.Second):
			r.t.Fatalf("never said %q: %s", want, r.err.String())
		}
	}
}

// stop tells it to stop and wants its exit code.
func (r *running) stop(want int) {
	r.t.Helper()
	r.signals <- syscall.SIGTERM
	select {
	case code := <-r.code:
		if code != want {
			r.t.Errorf("exit %d, want %d: %s", code, want, r.err.String())
		}
	case <-time.After(30 * time.Second):
		r.t.Fatalf("it does not stop: %s", r.err.String())
	}
}

func TestRelay(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL23] [messages/RL25] --once drains to CloudEvents lines in order, and ends with 0, or with 1 and counts", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		ids := s.append("orders.paid", "o-1", `{"n":1}`, `{"n":2}`)
		got, r := s.once(0)
		same(t, got, `{"n":1}`, `{"n":2}`)
		var e map[string]any
		if err := json.Unmarshal([]byte(strings.SplitN(r.out, "\n", 2)[0]), &e); err != nil || e["id"] != ids[0] || e["source"] != "/shop/orders" || e["specversion"] != "1.0" ||
			e["topic"] != "orders.paid" || e["partitionkey"] != "o-1" || e["tenant"] != "default" {
			t.Errorf("%v %v", e, err)
		}
		got, _ = s.once(0)
		same(t, got)
		s.append("orders.paid", "o-1", `"dead"`, `"behind"`)
		s.append("orders.paid", "o-2", `"other"`)
		j := &judge{refuse: func(d outbox.Delivery) error {
			if string(d.Payload) == `"dead"` {
				return outbox.Refused(errors.New("too large for it"))
			}
			return nil
		}}
		s.drain(j)
		_, r = s.once(1)
		if r.err != "idempo: 0 events wait, 1 are dead\n  idempo outbox list --status dead\n" && !strings.Contains(r.err, "1 are dead") {
			t.Errorf("%q", r.err)
		}
	})
	t.Run("[messages/RL25] the reader of stdout goes away: exit 141, and nothing is taken for published that was not", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
			s.append("orders.paid", "o-1", want[i])
		}
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() { // reads a line and goes
			_, _ = bufio.NewReaderSize(out, 16).ReadString('\n')
			_ = out.Close()
		}()
		var errb buffer
		slow := &stutter{w: in}
		code := Run(Process{Args: []string{"relay", "--to", "stdout:", "--max-in-flight", "1"}, Env: s.env, Dir: s.dir, In: strings.NewReader(""), Out: slow, Err: &errb, Signals: make(chan os.Signal)})
		_ = in.Close()
		if code != 141 {
			t.Fatalf("exit %d: %s", code, errb.String())
		}
		got, _ := s.once(0)
		if len(got) == 0 || !slices.Equal(got, want[len(want)-len(got):]) || len(want)-len(got) > slow.written {
			t.Errorf("%d lines were written; then came %v", slow.written, got)
		}
	})
	t.Run("[messages/RL28] wrong flags, words and schemes: 125 with the valid ones, before any store is opened", func(t *testing.T) {
		t.Parallel()
		s := &shop{shell: newShell(t)}
		s.want(125, "", "idempo: say where to: --to, or relays in a configuration file\n  idempo relay --to stdout: --once\n", "relay", "--store", "nowhere.db")
		for _, one := range [][]string{{"--to: not a destination; did you mean nats:?", "--to", "nast://h"}, {"known are: nats:// kafka://", "--to", "ftp://h"},
			{"--lease: not a duration", "--to", "null:", "--lease", "5"}, {"--on-dead: one of: block continue", "--to", "null:", "--on-dead", "stop"},
			{"unknown flag --lese", "--to", "null:", "--lese", "5s"}, {"did you mean --lease?", "--to", "null:", "--lese", "5s"}, {"--retention: ", "--to", "null:", "--retention", "x"}} {
			r := s.run(append([]string{"relay", "--store", "nowhere.db"}, one[1:]...)...)
			if r.code != 125 || !strings.Contains(r.err, one[0]) {
				t.Errorf("%v: %+v", one, r)
			}
		}
		if _, err := os.Stat(filepath.Join(s.dir, "nowhere.db")); err == nil {
			t.Error("a store was made")
		}
	})
	t.Run("[messages/RL28] the store is away: --once ends with 69, a relay tries again", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		away := strings.Replace(s.dsn, "/shop_", "/nowhere_", 1)
		if r := s.run("relay", "--to", "null:", "--once", "--store", away); r.code != 69 {
			t.Errorf("%+v", r)
		}
		r := s.relay("--to", "stdout:", "--store", away)
		r.says(": unavailable\n")
		r.stop(0)
	})
	t.Run("[messages/RL22] several stores: one that is away neither stops nor slows the other", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		away := strings.Replace(s.dsn, "/shop_", "/nowhere_", 1)
		r := s.relay("--to", "stdout:", "--store", away, "--store", s.dsn)
		r.says(": unavailable\n")
		for i := range 20 {
			s.append("orders.paid", "o-1", fmt.Sprint(i))
			if got := r.next(); got != fmt.Sprint(i) {
				t.Errorf("published %s, want %d", got, i)
			}
		}
		var n int
		if err := s.db.QueryRowContext(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'idempo'").Scan(&n); err != nil || n > 3 {
			t.Errorf("%d connections, %v", n, err)
		}
		r.stop(0)
	})
	t.Run("[messages/RL15] a second group on a used outbox says where it begins; the groups are independent", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.append("orders.paid", "o-1", "1", "2")
		got, _ := s.once(0)
		same(t, got, "1", "2")
		_, r := s.once(125, "--group", "erp")
		if !strings.Contains(r.err, "add --from beginning or --from now") {
			t.Errorf("%q", r.err)
		}
		got, _ = s.once(0, "--group", "late", "--from", "now")
		same(t, got)
		got, _ = s.once(0, "--group", "erp", "--from", "beginning")
		same(t, got, "1", "2")
		s.append("orders.paid", "o-1", "3")
		for _, group := range []string{"late", "erp", "main"} {
			got, _ = s.once(0, "--group", group)
			same(t, got, "3")
		}
	})
	t.Run("[messages/RL18] another environment than the database's is refused with 78, and publishes nothing", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.append("orders.paid", "o-1", "1")
		got, _ := s.once(0, "--environment", "production")
		same(t, got, "1")
		s.append("orders.paid", "o-1", "2")
		_, r := s.once(78, "--environment", "staging")
		if !strings.Contains(r.err, "production") || !strings.Contains(r.err, "staging") || r.out != "" {
			t.Errorf("%+v", r)
		}
		got, _ = s.once(0, "--environment", "production")
		same(t, got, "2")
	})
	t.Run("[messages/RL13] a server that only reads, at start too: standby, nothing is published, and on it goes once it writes", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.append("orders.paid", "o-1", "1")
		readonly := func(on string) {
			t.Helper()
			var name string
			if err := s.db.QueryRowContext(t.Context(), "select current_database()").Scan(&name); err != nil {
				t.Fatal(err)
			}
			if _, err := s.db.ExecContext(t.Context(), "alter database "+name+" set default_transaction_read_only = "+on); err != nil {
				t.Fatal(err)
			}
		}
		readonly("on")
		r := s.relay("--to", "stdout:")
		r.says(": standby\n")
		readonly("off")
		if got := r.next(); got != "1" {
			t.Errorf("published %s", got)
		}
		r.stop(0)
	})
}

// stutter counts lines as they are written.
type stutter struct {
	w       io.Writer
	written int
}

func (s *stutter) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err == nil {
		s.written++
	}
	return n, err
}
