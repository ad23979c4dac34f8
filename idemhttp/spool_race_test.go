package idemhttp

import (
	"os"
	"sync"
	"testing"
)

// The start of one process removes empty folders, and may meet that of another just before its first file.
func TestAFileIsMadeWhileOthersStart(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				sweepSpools(os.TempDir())
			}
		}
	})
	for range 300 {
		s := &spools{}
		f, err := s.file()
		if err != nil {
			t.Error(err)
			break
		}
		_ = f.Close()
		_ = os.RemoveAll(s.dir)
	}
	close(stop)
	others.Wait()
}
