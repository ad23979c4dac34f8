package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

var errGone = errors.New("the stream failed before")

// stream is stdout or stderr. The first failed write is kept; after it nothing is written any more.
type stream struct {
	w      io.Writer
	failed error
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	if s.failed != nil {
		return 0, errGone
	}
	n, err := s.w.Write(b)
	if err != nil {
		s.failed = err
	}
	return n, err
}

func (s *stream) line(text string)                  { fmt.Fprintln(s, text) }
func (s *stream) printf(format string, args ...any) { fmt.Fprintf(s, format, args...) }

// object writes v as one line of JSON, without the escapes that HTML would need.
func (s *stream) object(v any) error {
	e := json.NewEncoder(s)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// terminal says whether a person sees what is written to w.
func terminal(w any) bool {
	if t, ok := w.(interface{ Terminal() bool }); ok { // what stands for one
		return t.Terminal()
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a character device as well
	return err != nil || !os.SameFile(st, null)
}

// colors says whether ESC sequences may be written: --color, then NO_COLOR, then FORCE_COLOR, then whether w is a terminal.
func (a *app) colors(w any) bool {
	switch {
	case a.color == "always":
		return true
	case a.color == "never", a.env("NO_COLOR") != "":
		return false
	case a.env("FORCE_COLOR") != "":
		return a.env("FORCE_COLOR") != "0"
	}
	return terminal(w)
}

// paint wraps text into an ANSI style where colours are on.
func paint(on bool, style, text string) string {
	if !on {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// escape makes stored or foreign text harmless on a terminal: control characters, line and direction marks and bytes that are
// not UTF-8 become visible escapes, so that data cannot move the cursor, hide or forge lines.
func escape(s string) string {
	clean := true
	for _, r := range s {
		if harmful(r) {
			clean = false
			break
		}
	}
	if clean && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !harmful(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func harmful(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r == 0x061c:
		return true
	}
	return r == utf8.RuneError
}
