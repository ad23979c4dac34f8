package idemhttp

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestSpool(t *testing.T) { // not parallel: it moves the folder for temporary files
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Run("[http/R18] memory to 64 KiB, then a file that nobody else can open", func(t *testing.T) {
		s := newSpools()
		b := s.open()
		defer b.close()
		chunk := bytes.Repeat([]byte("0123456789abcdef"), 1024)
		var whole []byte
		for i := range 4 {
			write(t, b, chunk)
			whole = append(whole, chunk...)
			if _, memory := b.bytes(); !memory || len(entries(t, temp)) != 0 {
				t.Fatalf("a file at %d KiB", 16*(i+1))
			}
		}
		write(t, b, []byte("x"))
		whole = append(whole, 'x')
		if _, memory := b.bytes(); memory {
			t.Fatal("still in memory over 64 KiB")
		}
		info, err := b.file.Stat()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		folder, err := os.Stat(s.dir)
		if err != nil || folder.Mode().Perm() != 0o700 {
			t.Errorf("folder mode %v, %v", folder.Mode(), err)
		}
		if left := entries(t, s.dir); len(left) != 0 && b.path == "" {
			t.Errorf("not unlinked: %v", left)
		}
		got, err := b.all()
		if err != nil || !bytes.Equal(got, whole) || b.digest() != sha256.Sum256(whole) {
			t.Errorf("read back %d bytes, %v", len(got), err)
		}
		if got, err := io.ReadAll(b.reader()); err != nil || !bytes.Equal(got, whole) {
			t.Errorf("reader: %d bytes, %v", len(got), err)
		}
		b.reset()
		write(t, b, []byte("again"))
		if got, _ := b.all(); string(got) != "again" {
			t.Errorf("after reset: %q", got)
		}
	})
	t.Run("[security/SEC26] the next start removes what a killed process left", func(t *testing.T) {
		dead := filepath.Join(temp, spoolFolder+"dead")
		must(t, os.Mkdir(dead, 0o700))
		must(t, os.WriteFile(filepath.Join(dead, "body-1"), []byte("canary"), 0o600))
		other := filepath.Join(temp, spoolFolder+"precious")
		must(t, os.Mkdir(other, 0o700))
		must(t, os.WriteFile(filepath.Join(other, "letter"), nil, 0o600))
		outside := t.TempDir()
		must(t, os.WriteFile(filepath.Join(outside, "body-1"), nil, 0o600))
		must(t, os.Symlink(outside, filepath.Join(temp, spoolFolder+"link")))
		s := newSpools()
		if _, err := os.Stat(dead); !os.IsNotExist(err) {
			t.Errorf("left behind: %v", err)
		}
		if _, err := os.Stat(filepath.Join(other, "letter")); err != nil {
			t.Errorf("removed a file that is none of ours: %v", err)
		}
		if _, err := os.Stat(filepath.Join(outside, "body-1")); err != nil {
			t.Errorf("followed a link: %v", err)
		}
		one := s.open()
		defer one.close()
		write(t, one, make([]byte, spoolMemory+1))
		newSpools() // another process starts and finds the folder empty
		two := s.open()
		defer two.close()
		write(t, two, make([]byte, spoolMemory+1))
	})
}

func write(t *testing.T, w io.Writer, p []byte) {
	t.Helper()
	if n, err := w.Write(p); n != len(p) || err != nil {
		t.Fatalf("wrote %d of %d: %v", n, len(p), err)
	}
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	var out []os.DirEntry
	for _, e := range list {
		if e.IsDir() && len(mustEntries(t, filepath.Join(dir, e.Name()))) == 0 {
			continue
		}
		out = append(out, e)
	}
	return out
}

func mustEntries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	return list
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
