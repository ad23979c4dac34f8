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
	// Delay: the flight stays on the wire until Wire.Release, and reaches the server then. The client does not hear of it.
	Delay
	// CutInside: what was sent before the statement is executed, half of its own last message arrives, and the connection
	// is reset.
	CutInside
	// BlackHole: from the statement on nothing passes, on no connection, either way; no connection is closed. New ones
	// are accepted and lead nowhere.
	BlackHole
)

// Trap says what a Wire waits for: the first statement that Match accepts. With After it is set only on a connection that
// has sent a statement which After accepts.
type Trap struct {
	Match func(sql string) bool
	After func(sql string) bool
	Fault Fault
	Cut   bool // the client's connection is closed when the fault has taken hold; otherwise it is silent from then on
	Down  bool // and from then on nobody reaches the server, see Wire.Refuse
}

// armed is a trap at work.
type armed struct {
	Trap
	once    sync.Once
	sprung  chan struct{}
	release chan struct{}
}

// Wire is a proxy before a PostgreSQL or MySQL server, without TLS. Of PostgreSQL it understands simple and extended queries,
// prepared or not, and many statements in one flight; of MySQL queries and prepared statements, where WithholdSync is
// LoseRequest: a command commits by itself. When its trap has sprung, the connection is silent until the client leaves; then
// the server's side is closed too. Other connections go on. Its methods are safe for concurrent use.
type Wire struct {
	ln      net.Listener
	closing chan struct{}
	wg      sync.WaitGroup

	greets bool          // the client speaks first, in messages of their own
	speaks func() speech // of a new connection

	mu       sync.Mutex
	network  string
	server   string
	trap     *armed
	closed   bool
	refuses  bool
	hole     bool
	links    int
	open     map[net.Conn]struct{}
	failures []error
}

// OpenWire listens on a port of its own and leads to a PostgreSQL server: its network and address, as net.Dial has them. A Trap
// without a Match is none.
func OpenWire(network, server string, trap Trap) (*Wire, error) {
	return openWire(network, server, trap, true, func() speech { return postgresSpeech{newStatements()} })
}

// OpenMySQLWire is OpenWire before a MySQL or MariaDB server.
func OpenMySQLWire(network, server string, trap Trap) (*Wire, error) {
	return openWire(network, server, trap, false, func() speech { return &mysqlSpeech{prepared: map[uint32]string{}} })
}

func openWire(network, server string, trap Trap, greets bool, speaks func() speech) (*Wire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open wire: %w", err)
	}
	w := &Wire{ln: ln, greets: greets, speaks: speaks, network: network, server: server, closing: make(chan struct{}), open: map[net.Conn]struct{}{}}
	w.Arm(trap)
	w.wg.Go(w.accept)
	return w, nil
}

// Port is where clients connect, on 127.0.0.1.
func (w *Wire) Port() int { return w.ln.Addr().(*net.TCPAddr).Port }

// Arm sets another trap in the place of the one that is set, on connections that are there too.
func (w *Wire) Arm(trap Trap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trap = &armed{Trap: trap, sprung: make(chan struct{}), release: make(chan struct{})}
}

func (w *Wire) armed() *armed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trap
}

// Sprung is closed when the fault of the trap that is set now has taken hold: what is to be executed is, what is to be
// lost is.
func (w *Wire) Sprung() <-chan struct{} { return w.armed().sprung }

// Release lets a delayed flight go on, once.
func (w *Wire) Release() { close(w.armed().release) }

// Refuse makes the server unreachable for new connections, which are closed at once, or reachable again.
func (w *Wire) Refuse(refuse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = refuse
}

// Move leads new connections to another server; those that are open stay where they are.
func (w *Wire) Move(network, server string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.network, w.server = network, server
}

// Links counts the connections that have led to the server so far.
func (w *Wire) Links() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.links
}

// Close cuts every connection and waits. It returns what the wire could not understand. A second Close does nothing.
func (w *Wire) Close() error {
	w.mu.Lock()
	if !w.closed {
		close(w.closing)
	}
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

// swallows reports whether the wire has become a black hole.
func (w *Wire) swallows() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hole
}

// cutOff reports whether the trap that is set has sprung.
func (w *Wire) cutOff() bool {
	select {
	case <-w.Sprung():
		return true
	default:
		return false
	}
}

func (w *Wire) serve(client net.Conn) {
	defer w.drop(client)
	if !w.keep(client) {
		return
	}
	w.mu.Lock()
	refuses, hole, network, address := w.refuses, w.hole, w.network, w.server
	w.mu.Unlock()
	switch {
	case refuses:
		return
	case hole:
		<-w.closing
		return
	}
	server, err := net.Dial(network, address)
	if err != nil {
		if w.Links() == 0 { // a server that was there before may be away
			w.fail(err)
		}
		return
	}
	defer w.drop(server)
	if !w.keep(server) {
		return
	}
	for w.greets {
		f, code, err := readGreeting(client)
		if err != nil {
			return
		}
		if code == codeSSL || code == codeGSS {
			_, _ = client.Write([]byte{'N'})
			continue
		}
		if code == codeCancel && w.cutOff() {
			return // who is cut off cannot cancel either
		}
		if _, err := server.Write(f.raw); err != nil || code == codeCancel {
			return
		}
		break
	}
	w.mu.Lock()
	w.links++
	w.mu.Unlock()
	l := &link{wire: w, client: client, server: server, known: w.speaks(), gone: make(chan struct{})}
	w.wg.Go(l.answers)
	l.requests()
	if w.swallows() {
		<-w.closing // the server hears of nothing
	}
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
	known          speech
	gone           chan struct{} // closed when the server says nothing more

	trap *armed // that set is about
	set  bool   // the trap is

	mu     sync.Mutex
	silent bool // the trap has caught this connection: no answer passes
	owed   int  // answers of the kind until that are awaited
	until  string
	came   chan struct{} // closed when none is owed any more
}

// requests passes on what the client sends, flight by flight, until it leaves.
func (l *link) requests() {
	var flight []frame
	for {
		f, err := l.known.read(l.client, false)
		if err != nil {
			break
		}
		if flight = append(flight, f); f.more {
			continue
		}
		if !l.pass(flight) {
			break
		}
		flight = nil
	}
	if !l.wire.swallows() {
		_ = l.server.Close()
	}
}

// pass sends one flight, or springs the trap on it: then what follows is swallowed. false: the connection is over.
func (l *link) pass(flight []frame) bool {
	trap := l.wire.armed()
	if trap != l.trap {
		l.trap, l.set = trap, trap.After == nil
	}
	at := slices.IndexFunc(flight, func(f frame) bool {
		sql := l.known.see(f)
		if sql == "" || trap.Match == nil {
			return false
		}
		hit := l.set && trap.Match(sql)
		l.set = l.set || trap.After != nil && trap.After(sql)
		return hit
	})
	if l.wire.swallows() {
		return true
	}
	first := false
	if at >= 0 {
		trap.once.Do(func() { first = true })
	}
	if !first {
		return l.send(flight)
	}
	for _, f := range flight[at+1:] {
		l.known.see(f)
	}
	l.catch(trap, flight, at)
	for {
		if _, err := l.known.read(l.client, false); err != nil {
			return false
		}
	}
}

// catch does to flight what the trap says. Its statement at place at is the one that matched.
func (l *link) catch(trap *armed, flight []frame, at int) {
	fault := trap.Fault
	if fault == WithholdSync && flight[at].alone {
		fault = LoseRequest
	}
	start, flush := l.known.begin(flight, at)
	switch fault {
	case LoseRequest, CutInside:
		l.sendUntil(append(slices.Clone(flight[:start]), flush...), runs(flight[:start]), doneKinds)
		if fault == CutInside {
			half := flight[at]
			half.raw = half.raw[:len(half.raw)/2]
			l.send(append(slices.Clone(flight[start:at]), half))
			_ = l.server.Close()
		}
	case WithholdSync:
		l.sendUntil(append(slices.Clone(flight[:at+1]), flush...), runs(flight[:at+1]), doneKinds)
	case KeepAnswer:
		l.sendUntil(flight, 1, string(answerReady))
	case Race:
		l.sendUntil(flight, 0, "")
	case Delay:
		l.await(0, "")
		l.sprung(trap)
		select {
		case <-trap.release:
			l.sendUntil(flight, 1, string(answerReady))
		case <-l.wire.closing:
		}
		return
	case BlackHole:
		l.wire.mu.Lock()
		l.wire.hole = true
		l.wire.mu.Unlock()
	}
	l.sprung(trap)
}

// sprung says that the fault has taken hold.
func (l *link) sprung(trap *armed) {
	if trap.Down {
		l.wire.Refuse(true)
	}
	close(trap.sprung) // before the client can know of it
	if trap.Cut || trap.Fault == CutInside {
		_ = l.client.Close()
	}
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

// await silences the connection; what is returned is closed when n answers of the kinds have come.
func (l *link) await(n int, kinds string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent, l.owed, l.until, l.came = true, n, kinds, make(chan struct{})
	if n == 0 {
		close(l.came)
	}
	return l.came
}

// sendUntil sends a flight and returns when n answers of the kinds have come, or the server has gone.
func (l *link) sendUntil(flight []frame, n int, kinds string) {
	came := l.await(n, kinds)
	l.send(flight)
	select {
	case <-came:
	case <-l.gone:
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

// hears takes one answer of a kind into account and reports whether the client is to have it.
func (l *link) hears(kind byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.silent {
		return true
	}
	if l.owed > 0 && strings.ContainsRune(l.until, rune(kind)) {
		if l.owed--; l.owed == 0 {
			close(l.came)
		}
	}
	return false
}

// answers passes on what the server sends, unless the connection is silent.
func (l *link) answers() {
	defer func() {
		close(l.gone)
		if !l.wire.swallows() {
			_ = l.client.Close()
		}
	}()
	for {
		f, err := l.known.read(l.server, true)
		if err != nil {
			return
		}
		l.known.hear(f)
		if l.hears(f.kind) && !l.wire.swallows() {
			if _, err := l.client.Write(f.raw); err != nil {
				return
			}
		}
	}
}
