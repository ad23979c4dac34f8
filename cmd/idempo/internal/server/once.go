package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// writeOnce writes a file with mode 0600, all or nothing, if there is none yet. It reports whether this process wrote it: of several
// that start at the same moment the first wins, and what it wrote is to be read.
func writeOnce(file string, content []byte) (bool, error) {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	tmp, err := os.CreateTemp(dir, filepath.Base(file)+".*") // 0600
	if err != nil {
		return false, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return false, err
	}
	err = os.Link(tmp.Name(), file) // fails if the file is there
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}
