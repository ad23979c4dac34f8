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

func TestSentTwice(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT15, CT40] a store behind a driver that sends everything twice", func(t *testing.T) {
		storetest.RunEngine(t, func(t testing.TB) storetest.Subject {
			s := storetest.Memory(t)
			s.Store = storetest.Twice(s.Store)
			s.Again = s.Store
			return s
		}, storetest.Caps{Tx: true})
	})
}

func TestMemstoreInbox(t *testing.T) {
	t.Parallel()
	t.Run("memstore keeps receipts and lanes", func(t *testing.T) {
		storetest.RunInbox(t, storetest.Memory, storetest.Caps{Tx: true, Lanes: true})
	})
}

func TestMemstoreOutbox(t *testing.T) {
	t.Parallel()
	t.Run("memstore keeps an outbox", func(t *testing.T) {
		storetest.RunOutbox(t, storetest.Memory, storetest.Caps{Tx: true, Lanes: true})
	})
}
