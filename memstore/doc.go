// Package memstore keeps idempo's records in the memory of one process: the reference that other stores are compared
// with, and the store of tests, examples and single-process tools.
//
// It has every ability a store can have. Claims and effects share a transaction (see [Store.InTx] and [OnCommit]),
// records expire by the clock, [Store.Sweep] removes what is over and [Store.Take] hands out due work. It starts no
// goroutine and reads time.Now only, so that it obeys testing/synctest.
//
// It never promises that anything outlives the process, and it never forgets a live record or tombstone to make room:
// at Options.MaxRecords new keys get idempo.ErrUnavailable.
//
// The rules of what may follow what are not here but in the Judge methods of idempo's params. What is here is how a
// judgement becomes unique: one mutex, rows that are never changed but replaced, and a list of the keys that an open
// transaction holds.
//
//	store := memstore.New(memstore.Options{})
//	eng, err := idempo.New(store, idempo.Config{…})
//
// Layer: adapter.
package memstore
