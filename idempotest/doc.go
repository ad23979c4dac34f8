// Package idempotest helps to test code that uses idempo: an engine for one test, a ledger of effects that is kept
// outside of what is tested, and stores that fail at every place in turn.
//
//	func TestCharge(t *testing.T) {
//		var ledger idempotest.Ledger
//		charge := newChargeHandler(idempotest.Engine(t, memstore.New(memstore.Options{}), operations...), &ledger)
//		for range 5 {
//			charge("o-123", 12)
//		}
//		ledger.Want(t, "charge o-123", 1)
//	}
//
// Store contracts are tested by package storetest.
//
// Layer: test kit, for _test.go files only.
package idempotest
