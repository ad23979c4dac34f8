//go:build unix

package server

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// versionLock keeps serve processes of different versions away from one SQLite file. Processes of one version share it; the
// kernel gives it back when a process dies.
type versionLock struct{ f *os.File }

// lockVersion takes the lock beside the file. Another version that holds it is an error that names it.
func lockVersion(store, version string) (*versionLock, error) {
	if err := os.MkdirAll(filepath.Dir(store), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	f, err := os.OpenFile(store+".serve", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil { // nobody else serves it
		err = f.Truncate(0)
		if err == nil {
			_, err = f.WriteAt([]byte(version+"\n"), 0)
		}
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
	}
	var other []byte
	if err == nil {
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			other, err = io.ReadAll(io.LimitReader(f, 1000))
		}
	}
	if v := strings.TrimSpace(string(other)); err == nil && v != version {
		err = fmt.Errorf("%s is being served by version %s, this is %s: stop the other one first", store, v, version)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("store: %w", err)
	}
	return &versionLock{f}, nil
}

func (l *versionLock) release() {
	if l != nil {
		_ = l.f.Close()
	}
}
