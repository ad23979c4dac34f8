// Package operator is what an operator can ask a store: which keys there are, what became of one, and under which digest keys
// it holds records. Command line, API and dashboard all stand on it.
//
// The questions are one-method interfaces that a store may answer: [Lister], [Historian], [DigestKeeper]. They read without
// lock and, [DigestKeeper] apart, without write. Records are what a store returns everywhere else: effective on the store's
// clock, the key as a digest.
//
//	page, err := store.List(ctx, operator.FindParams{State: idempo.StateInDoubt})
//	for _, rec := range page.Records {
//		fmt.Println(rec.Ref(), rec.Key.Operation)
//	}
//
// What it never promises: that a list is one moment. Records that exist throughout are listed exactly once; those that come,
// go or change while it is read may be seen in either form, or not.
//
// Layer: domain.
package operator
