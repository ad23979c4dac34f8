package crashtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// maxFrame bounds one message of the PostgreSQL protocol.
const maxFrame = 64 << 20

// frame is one message: its type, 0 for what a client says first, and all its bytes.
type frame struct {
	kind  byte
	raw   []byte
	more  bool // more belongs to its flight
	alone bool // what it does is committed with it
}

// Types of messages that the Wire looks into.
const (
	frameParse   = 'P'
	frameBind    = 'B'
	frameExecute = 'E'
	frameClose   = 'C'
	frameSync    = 'S'
	frameFlush   = 'H'
	frameQuery   = 'Q'
	answerDone   = 'C' // CommandComplete
	answerEmpty  = 'I' // EmptyQueryResponse
	answerPartly = 's' // PortalSuspended
	answerError  = 'E'
	answerReady  = 'Z'
	codeSSL      = 80877103
	codeGSS      = 80877104
	codeCancel   = 80877102
)

// readGreeting reads the untyped message with which a client begins.
func readGreeting(r io.Reader) (f frame, code uint32, err error) {
	f.raw = make([]byte, 8)
	if _, err := io.ReadFull(r, f.raw); err != nil {
		return frame{}, 0, err
	}
	n := binary.BigEndian.Uint32(f.raw)
	if n < 8 || n > maxFrame {
		return frame{}, 0, fmt.Errorf("greeting of %d bytes", n)
	}
	f.raw = append(f.raw, make([]byte, n-8)...)
	_, err = io.ReadFull(r, f.raw[8:])
	return f, binary.BigEndian.Uint32(f.raw[4:]), err
}

// readFrame reads one typed message.
func readFrame(r io.Reader) (f frame, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > maxFrame {
		return frame{}, fmt.Errorf("message of %d bytes", n)
	}
	f.kind = head[0]
	f.raw = append(head, make([]byte, n-4)...)
	_, err = io.ReadFull(r, f.raw[5:])
	return f, err
}

// text reads the first n zero-terminated strings of a message's body, from byte skip on.
func (f frame) text(n, skip int) []string {
	out := make([]string, n)
	rest := f.raw[min(5+skip, len(f.raw)):]
	for i := range out {
		one, after, _ := bytes.Cut(rest, []byte{0})
		out[i], rest = string(one), after
	}
	return out
}

// flushFrame asks the server to answer what it has.
func flushFrame() frame { return frame{kind: frameFlush, raw: []byte{frameFlush, 0, 0, 0, 4}} }

// statements follows which text a client's names stand for, on one connection.
type statements struct{ prepared, bound map[string]string }

func newStatements() *statements {
	return &statements{prepared: map[string]string{}, bound: map[string]string{}}
}

// see notes f and returns the text that it runs, "" if it runs none.
func (s *statements) see(f frame) string {
	switch f.kind {
	case frameParse:
		t := f.text(2, 0)
		s.prepared[t[0]] = t[1]
	case frameBind:
		t := f.text(2, 0)
		s.bound[t[0]] = s.prepared[t[1]]
	case frameClose:
		if len(f.raw) > 5 && f.raw[5] == 'S' {
			delete(s.prepared, f.text(1, 1)[0])
		}
	case frameExecute:
		return s.bound[f.text(1, 0)[0]]
	case frameQuery:
		return f.text(1, 0)[0]
	}
	return ""
}

// IsCommit reports whether sql is COMMIT, or ends with it: a simple query may hold many statements.
func IsCommit(sql string) bool {
	sql = strings.TrimRight(sql, "; \n\t")
	return strings.EqualFold(strings.TrimSpace(sql[strings.LastIndexByte(sql, ';')+1:]), "commit")
}
