package storetest_test

import (
	"testing"

	"github.com/idempo/idempo/storetest"
)

func TestMemstore(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E25] memstore passes the whole kit", func(t *testing.T) {
		storetest.Run(t, storetest.Memory, storetest.Caps{Tx: true, Sweep: true, Take: true})
	})
}
