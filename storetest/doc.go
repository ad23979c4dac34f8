// Package storetest is the contract of idempo.Store as executable tests: it says when a store is right.
//
// A store's test opens it and says what it can do; the kit plays every cell of the transition table, every rule and
// every bug ever found, each a named case:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Subject {
//			s := memstore.New(memstore.Options{})
//			return storetest.Subject{Store: s}
//		}, storetest.Caps{Tx: true, Sweep: true, Take: true})
//	}
//
// What is expected is written here by hand from the specification, not taken from the Judge methods that stores share:
// a mistake there is found, too. Time is the Now of the params, so that nothing sleeps. Cases that a store's Caps leave
// out are skipped with the reason. Wrappers of stores run the kit as well.
//
// The kit never proves durability: kill the process for that.
//
// Layer: test kit, for _test.go files only.
package storetest
