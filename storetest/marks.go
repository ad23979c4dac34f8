package storetest

import "github.com/idempo/idempo/inbox"

// messageMarks: a partition's mark only goes forward, is the subscriber's own, and no lane of a message.
func messageMarks(k *K) {
	one, two, other := k.box(inbox.Options{}), k.boxOn(k.Again, inbox.Options{}), k.box(inbox.Options{Subscriber: k.tenant + "-2"})
	move := func(b *box, to, want int64) {
		k.Helper()
		if was, err := b.Mark(k.ctx, "group/orders/0", to); was != want || err != nil {
			k.Fatalf("the mark was %d, %v; want %d", was, err, want)
		}
	}
	move(one, 9, 0)
	move(two, 10, 9)
	move(one, 3, 10)
	move(two, 0, 10)
	move(one, 1<<40, 10)
	move(two, 0, 1<<40)
	move(other, 1, 0)
	one.give(inLane("a", "group/orders/0", "1"), inbox.StatusDone)
	one.effects("a", 1)
	move(two, 0, 1<<40)
}
