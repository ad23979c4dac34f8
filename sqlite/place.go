package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// header is how every SQLite file begins; an empty file is a new database.
const header = "SQLite format 3\x00"

// place checks, before anything is opened, that path can hold a store: a file of this host in a folder that may be
// written. It returns the absolute path. Reasons name the fault, not the path.
func place(path string) (string, error) {
	if path == "" || strings.Contains(path, ":memory:") || strings.Contains(path, "mode=memory") {
		return "", errors.New("sqlite: open: a database in memory is another one for each connection and is gone with the process: give a file, or use memstore")
	}
	if strings.HasPrefix(path, "file:") || strings.ContainsRune(path, 0) {
		return "", errors.New("sqlite: open: path must be a plain file name, without file: and parameters")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite: open: %w", bare(err))
	}
	if kind := networkFS(filepath.Dir(path)); kind != "" {
		return "", fmt.Errorf("sqlite: open: the folder is on a network file system (%s), where SQLite's locks and shared memory do not hold: use a local disk, or the postgres store", kind)
	}
	return path, writable(path)
}

// writable reports why the file at path, or its folder, cannot be written: WAL keeps two more files beside it.
func writable(path string) error {
	probe, err := os.CreateTemp(filepath.Dir(path), ".idempo-probe-*")
	if err != nil {
		return fmt.Errorf("sqlite: open: the folder of the file cannot be written, and WAL needs two files beside it: %w", bare(err))
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("sqlite: open: the folder of the file cannot be written: %w", bare(err))
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		if s, serr := os.Stat(path); serr == nil && s.IsDir() {
			return errors.New("sqlite: open: the path is a folder, give a file in it")
		}
		return fmt.Errorf("sqlite: open: the file cannot be written: %w", bare(err))
	}
	defer f.Close()
	head := make([]byte, len(header))
	if n, err := io.ReadFull(f, head); n > 0 && (err != nil || string(head) != header) {
		return errors.New("sqlite: open: the file is not a SQLite database, or is encrypted; it was left as it is")
	}
	return nil
}

// bare returns the cause in err without the path that the os package prints.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func folder(file string) string { return filepath.Dir(file) }
