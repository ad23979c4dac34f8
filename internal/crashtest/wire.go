package crashtest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
)

// Fault is what a Wire does to the first statement that its trap matches.
type Fault int

const (
	// LoseRequest: neither the statement nor anything sent behind it reaches the server. What the client sent before it,
	// in the same flight too, is executed first.
	LoseRequest Fault = iota + 1
	// WithholdSync: the statement is executed and the message that would commit it, if it is a transaction of its own,
	// never arrives.
	WithholdSync
	// KeepAnswer: the statement is executed, committed and answered; the client never hears of it.
	KeepAnswer
	// Race: the statement is sent on, and nobody knows how far it comes. The client does not hear of it.
	Race
)

// Trap says what a Wire waits for: the first statement that Match accepts. With After it is set only on a connection that
// has sent a statement which After accepts.
type Trap struct {
	Match func(sql string) bool
	After func(sql string) bool
	Fault Fault
}

// Wire is a proxy before a PostgreSQL server, without TLS. It understands simple and extended queries, prepared or not,
// and many statements in one flight. When its trap has sprung, the connection is silent until the client leaves; then
// the server's side is closed too. Other connections go on.
type Wire struct {
	ln       net.Listener
	network  string
	server   string
	trap     Trap
	sprung   chan struct{}
	spring   sync.Once
	wg       sync.WaitGroup
	mu       sync.Mutex
	closed   bool
	open     map[net.Conn]struct{}
	failures []error
}

// OpenWire listens on a port of its own and leads to a server: its network and address, as net.Dial has them. A Trap
// without a Match is none.
func OpenWire(network, server string, trap Trap) (*Wire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open wire: %w", err)
	}
	w := &Wire{ln: ln, network: network, server: server, trap: trap, sprung: make(chan struct{}), open: map[net.Conn]struct{}{}}
	w.wg.Go(w.accept)
	return w, nil
}

// Port is where clients connect, on 127.0.0.1.
func (w *Wire) Port() int { return w.ln.Addr().(*net.TCPAddr).Port }

// Sprung is closed when the fault has taken hold: what is to be executed is, what is to be lost is.
func (w *Wire) Sprung() <-chan struct{} { return w.sprung }

// Close cuts every connection and waits. It returns what the wire could not understand.
func (w *Wire) Close() error {
	w.mu.Lock()
	w.closed = true
	_ = w.ln.Close()
	for c := range w.open {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
	return errors.Join(w.failures...)
}

func (w *Wire) accept() {
	for {
		c, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.wg.Go(func() { w.serve(c) })
	}
}

// keep notes an open connection; false: the wire is closed.
func (w *Wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.open[c] = struct{}{}
	return true
}

func (w *Wire) drop(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	_ = c.Close()
}

func (w *Wire) serve(client net.Conn) {
	defer w.drop(client)
	if !w.keep(client) {
		return
	}
	server, err := net.Dial(w.network, w.server)
	if err != nil {
		w.fail(err)
		return
	}
	defer w.drop(server)
	if !w.keep(server) {
		return
	}
	for {
		f, code, err := readGreeting(client)
		if err != nil {
			return
		}
		if code == codeSSL || code == codeGSS {
			_, _ = client.Write([]byte{'N'})
			continue
		}
		if _, err := server.Write(f.raw); err != nil || code == codeCancel {
			return
		}
		break
	}
	l := &link{wire: w, client: client, server: server, known: newStatements(), set: w.trap.After == nil}
	w.wg.Go(l.answers)
	l.requests()
}

func (w *Wire) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.failures = append(w.failures, fmt.Errorf("wire: %w", err))
	}
}

// link is one connection of a client.
type link struct {
	wire           *Wire
	client, server net.Conn
	known          *statements
	set            bool // the trap is

	mu     sync.Mutex
	silent bool // the trap has caught this connection: no answer passes
	owed   int  // answers of the kind until that are awaited before the fault has taken hold
	until  string
}

// requests passes on what the client sends, flight by flight, until it leaves.
func (l *link) requests() {
	defer func() { _ = l.server.Close() }()
	var flight []frame
	for {
		f, err := readFrame(l.client)
		if err != nil {
			return
		}
		flight = append(flight, f)
		if f.kind == frameParse || f.kind == frameBind || f.kind == frameExecute || f.kind == 'D' || f.kind == frameClose {
			continue // more belongs to it
		}
		if !l.pass(flight) {
			return
		}
		flight = nil
	}
}

// pass sends one flight, or springs the trap on it: then what follows is swallowed. false: the connection is over.
func (l *link) pass(flight []frame) bool {
	trap := l.wire.trap
	at := slices.IndexFunc(flight, func(f frame) bool {
		sql := l.known.see(f)
		if sql == "" || trap.Match == nil {
			return false
		}
		hit := l.set && trap.Match(sql)
		l.set = l.set || trap.After != nil && trap.After(sql)
		return hit
	})
	first := false
	if at >= 0 {
		l.wire.spring.Do(func() { first = true })
	}
	if !first {
		return l.send(flight)
	}
	for _, f := range flight[at+1:] {
		l.known.see(f)
	}
	l.catch(flight, at)
	for {
		if _, err := readFrame(l.client); err != nil {
			return false
		}
	}
}

// catch does to flight what the trap says. Its statement at place at is the one that matched.
func (l *link) catch(flight []frame, at int) {
	fault := l.wire.trap.Fault
	if flight[at].kind == frameQuery && fault == WithholdSync {
		fault = LoseRequest // a simple query commits by itself
	}
	switch fault {
	case LoseRequest:
		start := at
		for start > 0 && flight[start-1].kind != frameExecute {
			start-- // its own Parse, Bind, Describe
		}
		l.await(runs(flight[:start]), doneKinds)
		l.send(append(slices.Clone(flight[:start]), flushFrame()))
	case WithholdSync:
		l.await(runs(flight[:at+1]), doneKinds)
		l.send(append(slices.Clone(flight[:at+1]), flushFrame()))
	case KeepAnswer:
		l.await(1, string(answerReady))
		l.send(flight)
	case Race:
		l.await(0, "")
		l.send(flight)
	}
	l.took(0)
}

const doneKinds = string(answerDone) + string(answerEmpty) + string(answerPartly) + string(answerError)

func runs(flight []frame) (n int) {
	for _, f := range flight {
		if f.kind == frameExecute {
			n++
		}
	}
	return n
}

// await silences the connection and says which answers must be there before the fault has taken hold.
func (l *link) await(n int, kinds string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent, l.owed, l.until = true, n, kinds
}

// took counts n answers and springs the trap when none is owed.
func (l *link) took(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed -= n; l.owed > 0 {
		return
	}
	select {
	case <-l.wire.sprung:
	default:
		close(l.wire.sprung)
	}
}

func (l *link) send(flight []frame) bool {
	var all []byte
	for _, f := range flight {
		all = append(all, f.raw...)
	}
	_, err := l.server.Write(all)
	return err == nil
}

// answers passes on what the server sends, unless the connection is silent.
func (l *link) answers() {
	defer func() { _ = l.client.Close() }()
	for {
		f, err := readFrame(l.server)
		if err != nil {
			return
		}
		l.mu.Lock()
		silent, counts := l.silent, strings.ContainsRune(l.until, rune(f.kind))
		l.mu.Unlock()
		if silent {
			if counts {
				l.took(1)
			}
			continue
		}
		if _, err := l.client.Write(f.raw); err != nil {
			return
		}
	}
}
