package crashtest_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/idempo/idempo/internal/crashtest"
)

// server speaks as much of the protocol as the wire must understand, and notes what arrives: a letter for each message,
// and the text of statements.
type server struct {
	ln   net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	got  map[string][]string // by user
	over map[string]chan struct{}
	conn map[string]net.Conn
}

func newServer(t *testing.T) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{ln: ln, got: map[string][]string{}, over: map[string]chan struct{}{}, conn: map[string]net.Conn{}}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); s.wg.Wait() })
	return s
}

func (s *server) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	name := make([]byte, binary.BigEndian.Uint32(head)-8)
	if _, err := io.ReadFull(c, name); err != nil {
		return
	}
	user, over := string(name), make(chan struct{})
	defer close(over)
	s.mu.Lock()
	s.over[user], s.conn[user] = over, c
	s.mu.Unlock()
	_, _ = c.Write(append(message('R', "\x00\x00\x00\x00"), message('Z', "I")...))
	for {
		kind, body, err := read(c)
		if err != nil {
			return
		}
		note := string(kind)
		if kind == 'P' || kind == 'Q' {
			note += " " + strings.ReplaceAll(strings.TrimRight(body, "\x00"), "\x00", ":")
		}
		s.mu.Lock()
		s.got[user] = append(s.got[user], note)
		s.mu.Unlock()
		switch kind {
		case 'Q':
			_, _ = c.Write(append(message('C', "DONE\x00"), message('Z', "I")...))
		case 'E':
			_, _ = c.Write(message('C', "DONE\x00"))
		case 'P':
			_, _ = c.Write(message('1', ""))
		case 'B':
			_, _ = c.Write(message('2', ""))
		case 'S':
			_, _ = c.Write(message('Z', "I"))
		}
	}
}

// seen returns what arrived from user once its connection is over.
func (s *server) seen(user string) string {
	s.mu.Lock()
	over := s.over[user]
	s.mu.Unlock()
	<-over
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.got[user], ", ")
}

func message(kind byte, body string) []byte {
	out := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(out, body...)
}

func read(r io.Reader) (byte, string, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, "", err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	_, err := io.ReadFull(r, body)
	return head[0], string(body), err
}

// Messages of a client.
func parse(name, sql string) []byte { return message('P', name+"\x00"+sql+"\x00\x00\x00") }
func bind(portal, name string) []byte {
	return message('B', portal+"\x00"+name+"\x00\x00\x00\x00\x00\x00\x00")
}
func execute(portal string) []byte { return message('E', portal+"\x00\x00\x00\x00\x00") }
func sync1() []byte                { return message('S', "") }
func query(sql string) []byte      { return message('Q', sql+"\x00") }

func extended(sql string) []byte {
	return join(parse("", sql), bind("", ""), message('D', "P\x00"), execute(""))
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// connect returns a connection through w, past the greeting.
func connect(t *testing.T, w *crashtest.Wire, user string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, _ = c.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}) // TLS?
	one := make([]byte, 1)
	if _, err := io.ReadFull(c, one); err != nil || one[0] != 'N' {
		t.Fatal(one, err)
	}
	greeting := binary.BigEndian.AppendUint32(nil, uint32(8+len(user)))
	_, _ = c.Write(append(append(greeting, 0, 3, 0, 0), user...))
	until(t, c, 'Z')
	return c
}

// until reads messages up to one of a kind and returns all kinds.
func until(t *testing.T, c net.Conn, last byte) (kinds string) {
	t.Helper()
	for {
		kind, _, err := read(c)
		if err != nil {
			t.Fatal(kinds, err)
		}
		if kinds += string(kind); kind == last {
			return kinds
		}
	}
}

func wire(t *testing.T, s *server, trap crashtest.Trap) *crashtest.Wire {
	t.Helper()
	w, err := crashtest.OpenWire("tcp", s.ln.Addr().String(), trap)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func is(want string) func(string) bool { return func(sql string) bool { return sql == want } }

func TestWirePasses(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	w := wire(t, s, crashtest.Trap{})
	c := connect(t, w, "ann")
	_, _ = c.Write(join(extended("select 1"), extended("commit"), sync1()))
	if got := until(t, c, 'Z'); got != "12C12CZ" {
		t.Error(got)
	}
	_, _ = c.Write(query("commit"))
	if got := until(t, c, 'Z'); got != "CZ" {
		t.Error(got)
	}
	_ = c.Close()
	if got := s.seen("ann"); got != "P :select 1, B, D, E, P :commit, B, D, E, S, Q commit" {
		t.Error(got)
	}
	select {
	case <-w.Sprung():
		t.Error("a wire without a trap has sprung")
	default:
	}
}

func TestWireFaults(t *testing.T) {
	t.Parallel()
	flight := join(extended("insert"), extended("commit"), extended("more"), sync1())
	first, second := "P :insert, B, D, E", "P :commit, B, D, E"
	all := first + ", " + second + ", P :more, B, D, E, S"
	for _, c := range []struct {
		name  string
		fault crashtest.Fault
		send  []byte
		want  string // what reaches the server
	}{
		{"lost from the statement on", crashtest.LoseRequest, flight, first + ", H"},
		{"executed, the end of the flight withheld", crashtest.WithholdSync, flight, first + ", " + second + ", H"},
		{"answered, the answer kept", crashtest.KeepAnswer, flight, all},
		{"sent on, the rest unknown", crashtest.Race, flight, all},
		{"a simple query lost", crashtest.LoseRequest, query("commit"), "H"},
		{"a simple query has no end to withhold", crashtest.WithholdSync, query("commit"), "H"},
		{"a simple query answered", crashtest.KeepAnswer, query("commit"), "Q commit"},
		{"a prepared statement", crashtest.LoseRequest, join(bind("p", "named"), execute("p"), sync1()), "H"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			w := wire(t, s, crashtest.Trap{Match: is("commit"), Fault: c.fault})
			other, victim := connect(t, w, "other"), connect(t, w, "victim")
			_, _ = victim.Write(join(parse("named", "commit"), sync1()))
			until(t, victim, 'Z')
			_, _ = victim.Write(c.send)
			<-w.Sprung()
			_, _ = other.Write(query("commit")) // a trap springs once, and nobody else is caught
			if got := until(t, other, 'Z'); got != "CZ" {
				t.Error("another connection:", got)
			}
			_, _ = victim.Write(query("rollback")) // swallowed
			_ = victim.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(victim); err != nil || len(got) > 0 {
				t.Errorf("the client heard %q %v", got, err)
			}
			if got := s.seen("victim"); got != "P named:commit, S, "+c.want {
				t.Errorf("the server got %s, want %s", got, c.want)
			}
		})
	}
}

func TestWireDelays(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	w := wire(t, s, crashtest.Trap{})
	c := connect(t, w, "ann")
	w.Arm(crashtest.Trap{Match: is("commit"), Fault: crashtest.Delay, Cut: true})
	_, _ = c.Write(query("commit"))
	<-w.Sprung()
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Errorf("the client heard %q %v", got, err)
	}
	other := connect(t, w, "other")
	_, _ = other.Write(query("commit"))
	until(t, other, 'Z')
	w.Release()
	if got := s.seen("ann"); got != "Q commit" {
		t.Error(got)
	}
	if n := w.Links(); n != 2 {
		t.Errorf("%d links", n)
	}
}

func TestWireCutsInside(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	w := wire(t, s, crashtest.Trap{Match: is("commit"), Fault: crashtest.CutInside, Down: true})
	c := connect(t, w, "ann")
	_, _ = c.Write(join(extended("insert"), extended("commit"), sync1()))
	<-w.Sprung()
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Errorf("the client heard %q %v", got, err)
	}
	if got := s.seen("ann"); got != "P :insert, B, D, E, H, P :commit, B, D" {
		t.Error(got)
	}
	down, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port()))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(down); err != nil || len(got) > 0 {
		t.Errorf("the server is reached: %q %v", got, err)
	}
	w.Refuse(false)
	_ = connect(t, w, "bob")
}

func TestWireBlackHole(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	w := wire(t, s, crashtest.Trap{Match: is("renew"), Fault: crashtest.BlackHole})
	c, other := connect(t, w, "ann"), connect(t, w, "bob")
	_, _ = c.Write(query("renew"))
	<-w.Sprung()
	_, _ = other.Write(query("select"))
	_ = c.Close()
	s.mu.Lock()
	silent := s.conn["ann"]
	s.mu.Unlock()
	late, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port()))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = late.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47})
	// The server's own end is the only one that ends anything: what it says then reaches nobody.
	_ = silent.Close()
	for _, from := range []net.Conn{other, late} {
		_ = from.(*net.TCPConn).CloseWrite()
	}
	if got := s.seen("ann"); got != "" {
		t.Errorf("the server got %s", got)
	}
	heard := make(chan int, 2)
	for _, from := range []net.Conn{other, late} {
		go func() { got, _ := io.ReadAll(from); heard <- len(got) }()
	}
	select {
	case <-heard:
		t.Error("a connection ended in the black hole")
	case <-s.over["bob"]:
		t.Error("the server heard that a client left")
	default:
	}
}

func TestWireIsSetLater(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	w := wire(t, s, crashtest.Trap{Match: is("commit"), After: is("lock"), Fault: crashtest.LoseRequest})
	c := connect(t, w, "ann")
	for _, sql := range []string{"commit", "lock"} {
		_, _ = c.Write(query(sql))
		until(t, c, 'Z')
	}
	_, _ = c.Write(query("commit"))
	<-w.Sprung()
	_ = c.Close()
	if got := s.seen("ann"); got != "Q commit, Q lock, H" {
		t.Error(got)
	}
}

func TestWireMoves(t *testing.T) {
	t.Parallel()
	one, two := newServer(t), newServer(t)
	w := wire(t, one, crashtest.Trap{})
	a := connect(t, w, "ann")
	w.Move("tcp", two.ln.Addr().String())
	b := connect(t, w, "bob")
	for _, c := range []net.Conn{a, b} {
		_, _ = c.Write(query("select"))
		until(t, c, 'Z')
		_ = c.Close()
	}
	if one.seen("ann") != "Q select" || two.seen("bob") != "Q select" {
		t.Error("old connections stay, new ones go to the new server")
	}
}

func TestWireFailures(t *testing.T) {
	t.Parallel()
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		w, err := crashtest.OpenWire("tcp", "127.0.0.1:1", crashtest.Trap{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
			t.Error(got, err)
		}
		if w.Close() == nil {
			t.Error("no error")
		}
	})
	t.Run("commit by any spelling", func(t *testing.T) {
		t.Parallel()
		for sql, want := range map[string]bool{"commit": true, "COMMIT": true, " Commit; ": true, "insert; commit;": true, "commit; select 1": false, "commit prepared 'x'": false, "": false} {
			if crashtest.IsCommit(sql) != want {
				t.Error(sql)
			}
		}
	})
}

// packet is one of MySQL's.
func packet(order byte, body string) []byte {
	return append([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), order}, body...)
}

// A server of MySQL greets first and takes one command at a time; this one answers every packet with OK, a Prepare with number 7,
// and notes what it got.
func TestMySQLWire(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		trap  crashtest.Trap
		send  [][]byte // one after the other
		got   string   // by the server
		heard int      // answers
	}{
		{"nothing", crashtest.Trap{}, [][]byte{packet(0, "\x03select 1"), packet(0, "\x03commit")}, "\x03select 1, \x03commit", 2},
		{"lost", crashtest.Trap{Match: is("commit"), Fault: crashtest.LoseRequest}, [][]byte{packet(0, "\x03select 1"), packet(0, "\x03commit")}, "\x03select 1", 1},
		{"lost where it would be withheld", crashtest.Trap{Match: is("commit"), Fault: crashtest.WithholdSync}, [][]byte{packet(0, "\x03commit")}, "", 0},
		{"answer lost", crashtest.Trap{Match: is("commit"), Fault: crashtest.KeepAnswer}, [][]byte{packet(0, "\x03commit")}, "\x03commit", 0},
		{"prepared", crashtest.Trap{Match: is("insert ?"), Fault: crashtest.LoseRequest}, [][]byte{packet(0, "\x16insert ?"), packet(0, "\x17\x07\x00\x00\x00x")}, "\x16insert ?", 1},
		{"another number", crashtest.Trap{Match: is("insert ?"), Fault: crashtest.LoseRequest}, [][]byte{packet(0, "\x16insert ?"), packet(0, "\x17\x08\x00\x00\x00x")},
			"\x16insert ?, \x17\x08\x00\x00\x00x", 2},
		{"a login that looks like a command", crashtest.Trap{Match: is("commit"), Fault: crashtest.LoseRequest}, [][]byte{packet(1, "\x03commit")}, "\x03commit", 1},
	} {
		t.Run("[stores/CT43] MySQL: "+c.name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			over := make(chan struct{})
			go func() {
				defer close(over)
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				_, _ = c.Write(packet(0, "hello"))
				for {
					head := make([]byte, 4)
					if _, err := io.ReadFull(c, head); err != nil {
						return
					}
					body := make([]byte, int(head[0])|int(head[1])<<8)
					if _, err := io.ReadFull(c, body); err != nil {
						return
					}
					got = append(got, string(body))
					_, _ = c.Write(packet(1, "\x00\x07\x00\x00\x00\x00"))
				}
			}()
			w, err := crashtest.OpenMySQLWire("tcp", ln.Addr().String(), c.trap)
			if err != nil {
				t.Fatal(err)
			}
			client, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port()))
			if err != nil {
				t.Fatal(err)
			}
			hear := func(body string) {
				t.Helper()
				want := make([]byte, 4+len(body))
				if _, err := io.ReadFull(client, want); err != nil || string(want[4:]) != body {
					t.Fatalf("%q %v", want, err)
				}
			}
			hear("hello")
			for i, one := range c.send {
				if _, err := client.Write(one); err != nil {
					t.Fatal(err)
				}
				if i < c.heard {
					hear("\x00\x07\x00\x00\x00\x00")
				}
			}
			if c.heard < len(c.send) {
				<-w.Sprung()
			}
			_ = client.Close()
			<-over
			if all := strings.Join(got, ", "); all != c.got {
				t.Errorf("%q, want %q", all, c.got)
			}
			_ = ln.Close()
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
