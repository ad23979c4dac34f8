package crashtest

import (
	"encoding/binary"
	"io"
	"sync"
)

// speech is the protocol that a link passes on, as far as the Wire must understand it. It is of one connection.
type speech interface {
	// read reads one message of the client, or of the server.
	read(r io.Reader, server bool) (frame, error)
	// see notes what the client says and returns the text that it runs, "" if it runs none.
	see(f frame) string
	// hear notes what the server says.
	hear(f frame)
	// begin says where the messages of a flight begin that belong to its statement at place at, and what makes the server answer all
	// that came before.
	begin(flight []frame, at int) (start int, flush []frame)
}

// postgresSpeech is version 3 of PostgreSQL's.
type postgresSpeech struct{ *statements }

func (postgresSpeech) hear(frame) {}

func (postgresSpeech) read(r io.Reader, _ bool) (frame, error) {
	f, err := readFrame(r)
	f.more = f.kind == frameParse || f.kind == frameBind || f.kind == frameExecute || f.kind == 'D' || f.kind == frameClose
	f.alone = f.kind == frameQuery
	return f, err
}

func (postgresSpeech) begin(flight []frame, at int) (int, []frame) {
	for at > 0 && flight[at-1].kind != frameExecute {
		at-- // its own Parse, Bind, Describe
	}
	return at, []frame{flushFrame()}
}

// mysqlSpeech is that of MySQL and MariaDB: packets of three bytes of length and one of order, one command at a time.
type mysqlSpeech struct {
	mu       sync.Mutex
	asked    string            // the text of a Prepare that is not answered
	prepared map[uint32]string // by the server's number
}

// Commands that the Wire looks into, and the first byte of an answer that all went well.
const (
	commandQuery   = 3
	commandPrepare = 0x16
	commandExecute = 0x17
	answerFine     = 0
)

// read reads a packet. Everything of the server's is an answer: it says a first word when a command is carried out.
func (*mysqlSpeech) read(r io.Reader, server bool) (f frame, err error) {
	f.raw, f.alone = make([]byte, 4), true
	if _, err := io.ReadFull(r, f.raw); err != nil {
		return frame{}, err
	}
	n := int(f.raw[0]) | int(f.raw[1])<<8 | int(f.raw[2])<<16
	f.raw = append(f.raw, make([]byte, n)...)
	if _, err := io.ReadFull(r, f.raw[4:]); err != nil {
		return frame{}, err
	}
	switch {
	case server:
		f.kind = answerReady
	case f.raw[3] == 0 && n > 0: // the first packet of an exchange is a command; the others belong to a login
		f.kind = f.raw[4]
	}
	return f, nil
}

func (s *mysqlSpeech) see(f frame) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case f.kind == commandQuery:
		return string(f.raw[5:])
	case f.kind == commandPrepare:
		s.asked = string(f.raw[5:])
	case f.kind == commandExecute && len(f.raw) >= 9:
		return s.prepared[binary.LittleEndian.Uint32(f.raw[5:])]
	}
	return ""
}

func (s *mysqlSpeech) hear(f frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != "" && len(f.raw) >= 9 && f.raw[4] == answerFine {
		s.prepared[binary.LittleEndian.Uint32(f.raw[5:])] = s.asked
	}
	s.asked = ""
}

func (*mysqlSpeech) begin(_ []frame, at int) (int, []frame) { return at, nil }
