package cli

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestHangup(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGHUP on Windows")
	}
	t.Run("[operations/OP37] SIGHUP reads the file again; the process goes on", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		text := "version: 1\nstore: {sqlite: idempo.db}\nreload: {watch: false}\n"
		s.file("idempo.yaml", text)
		v := s.serve("--upstream", "http://127.0.0.1:9")
		v.front() // it has started
		until := func(said string) {
			t.Helper()
			for !strings.Contains(v.err.String(), said) {
				if t.Context().Err() != nil || len(v.code) > 0 {
					t.Fatalf("not said: %s\n%s", said, v.err.String())
				}
				runtime.Gosched()
			}
		}
		s.file("idempo.yaml", text+"lissen: {}\n")
		v.signals <- syscall.SIGHUP
		until("idempo.yaml:4:1: lissen: ")
		s.file("idempo.yaml", text+"shutdown: {grace: 20s}\n")
		v.signals <- syscall.SIGHUP
		until("configuration taken over")
		v.signals <- os.Interrupt
		if code := <-v.code; code != 0 {
			t.Fatal(code, v.err.String())
		}
	})
}
