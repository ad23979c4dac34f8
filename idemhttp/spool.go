package idemhttp

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
)

// spoolMemory is how much of a body or an answer stays in memory, in bytes.
const spoolMemory = 64 << 10

// spoolFolder begins the name of the folders for bodies and answers beyond spoolMemory.
const spoolFolder = "idempo-spool-"

// errSpool means that a temporary file failed, and not what is read from or written to.
var errSpool = errors.New("idemhttp: temporary file")

// spools hands out spools. It owns the memory they use and the folder of their files. Safe for concurrent use.
type spools struct {
	buffers sync.Pool // *[]byte
	headers sync.Pool // http.Header, empty

	mu  sync.Mutex
	dir string // made with the first file
}

// newSpools removes what processes that were killed left behind in the folder for temporary files. Files in use are not
// harmed: they are unlinked as soon as they are open, or the system refuses to remove them.
func newSpools() *spools {
	sweepSpools(os.TempDir())
	return &spools{}
}

func (s *spools) buffer() *[]byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 1024)
	return &b
}

func (s *spools) open() *spool { return s.ready(new(spool)) }

// ready opens a spool in memory that the caller has.
func (s *spools) ready(sp *spool) *spool {
	*sp = spool{owner: s, buf: s.buffer()}
	return sp
}

// header is an empty map to be given back with putHeader. Nobody else may keep it.
func (s *spools) header() http.Header {
	if h, ok := s.headers.Get().(http.Header); ok {
		return h
	}
	return make(http.Header, 8)
}

func (s *spools) putHeader(h http.Header) {
	clear(h)
	s.headers.Put(h)
}

// file is a new open file of mode 0600 in a folder of mode 0700, unlinked where the system allows it. The start of another
// process may remove a folder while it is empty, also the one that was made just now: then there is another try.
func (s *spools) file() (f *os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 100 {
		if s.dir == "" {
			if s.dir, err = os.MkdirTemp("", spoolFolder); err != nil {
				return nil, err
			}
		}
		if f, err = os.CreateTemp(s.dir, "body-"); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		s.dir = ""
	}
	return nil, err
}

// sweepSpools removes abandoned folders, and the files in them, from a folder for temporary files. It follows no link out of it.
func sweepSpools(temp string) {
	root, err := os.OpenRoot(temp)
	if err != nil {
		return
	}
	defer root.Close()
	names, err := fs.Glob(root.FS(), spoolFolder+"*")
	if err != nil {
		return
	}
	for _, name := range names {
		if info, err := root.Lstat(name); err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
			continue
		}
		dir, err := root.OpenRoot(name)
		if err != nil {
			continue
		}
		if files, err := fs.ReadDir(dir.FS(), "."); err == nil {
			for _, f := range files {
				if strings.HasPrefix(f.Name(), "body-") {
					_ = dir.Remove(f.Name())
				}
			}
		}
		_ = dir.Close()
		_ = root.Remove(name) // fails while something is in it
	}
}

// spool holds a body or an answer: up to spoolMemory in memory, then in a file. It is not safe for concurrent use.
type spool struct {
	owner *spools
	buf   *[]byte  // what is in memory; all of it while file is nil
	file  *os.File // what came after spoolMemory was full, with what was in memory before it
	path  string   // set where an open file could not be unlinked
	size  int64
	sum   hash.Hash // of everything, once there is a file
}

// Write appends p. An error means that the disk refused it; the spool is then of no use.
func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && s.size+int64(len(p)) <= spoolMemory {
		*s.buf = append(*s.buf, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.file == nil {
		if err := s.spill(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.Write(p)
	s.sum.Write(p[:n])
	s.size += int64(n)
	if err != nil {
		err = fmt.Errorf("%w: %w", errSpool, err)
	}
	return n, err
}

func (s *spool) spill() error {
	f, err := s.owner.file()
	if err != nil {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	if os.Remove(f.Name()) != nil {
		s.path = f.Name()
	}
	s.file, s.sum = f, sha256.New()
	s.sum.Write(*s.buf)
	if _, err = f.Write(*s.buf); err != nil {
		err = fmt.Errorf("%w: %w", errSpool, err)
	}
	return err
}

// bytes is everything, where it fits in memory; it stays valid until the spool changes or is closed.
func (s *spool) bytes() ([]byte, bool) { return *s.buf, s.file == nil }

// all is everything, read into memory where it is in a file.
func (s *spool) all() ([]byte, error) {
	if s.file == nil {
		return *s.buf, nil
	}
	b := make([]byte, s.size)
	_, err := s.file.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b, err
}

// head is the beginning, at most n bytes.
func (s *spool) head(n int) []byte { return (*s.buf)[:min(n, len(*s.buf))] }

// reader reads everything from the beginning, independently of other readers.
func (s *spool) reader() io.ReadSeeker {
	if s.file == nil {
		return bytes.NewReader(*s.buf)
	}
	return io.NewSectionReader(s.file, 0, s.size)
}

// sendTo writes everything to a client. One that is gone is its own loss.
func (s *spool) sendTo(w io.Writer) {
	switch {
	case s.size == 0:
	case s.file == nil:
		_, _ = w.Write(*s.buf)
	default:
		_, _ = io.Copy(w, s.reader())
	}
}

// content is everything, as the fingerprint reads it.
func (s *spool) content() content {
	if s.file == nil {
		return content{mem: *s.buf}
	}
	return content{file: s.reader()}
}

// digest is the SHA-256 of everything.
func (s *spool) digest() [32]byte {
	if s.file == nil {
		return sha256.Sum256(*s.buf)
	}
	return [32]byte(s.sum.Sum(nil))
}

// reset empties the spool, for another attempt.
func (s *spool) reset() {
	s.dropFile()
	*s.buf = (*s.buf)[:0]
	s.size = 0
}

// close gives memory and file back. The spool and what came from it must not be used afterwards.
func (s *spool) close() {
	if s.buf == nil {
		return
	}
	s.reset()
	s.owner.buffers.Put(s.buf)
	s.buf = nil
}

func (s *spool) dropFile() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	if s.path != "" {
		_ = os.Remove(s.path)
	}
	s.file, s.path, s.sum = nil, "", nil
}
