package storetest

import (
	"bytes"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// sealCases are the rules for what is encrypted of a stored message.
func sealCases() []testCase {
	c := func(name string, run func(k *K)) testCase { return testCase{name: name, needs: needTx, run: run} }
	return []testCase{
		c("[security/SEC35] bodies and headers of receipts are encrypted as results are; older ones in clear run", sealedMessages),
		c("[security/SEC36] [security/SEC37] a body that belongs elsewhere, was changed or has lost its key never runs, and nothing else suffers", sealedMoved),
	}
}

func encryptionKey(id string) idempo.Secret {
	return idempo.Secret{ID: id, Value: bytes.Repeat([]byte(id), 32)[:32]}
}

// boxSealed is a box whose engine has encryption keys.
func (k *K) boxSealed(o inbox.Options, keys ...idempo.Secret) *box {
	k.Helper()
	o.Subscriber, o.Tenant, o.BackoffBase, o.BackoffMax = k.tenant, k.tenant, 1, 1
	in, err := inbox.New(k.engine(k.Store, idempo.Config{EncryptionKeys: keys}), o)
	k.ok(err)
	return &box{Inbox: in, k: k}
}

// raw is what the store has, whatever an inbox makes of it.
func (k *K) raw() map[string]inbox.Receipt {
	k.Helper()
	rs, err := k.shelfAgain().List(k.ctx, inbox.ListParams{Subscriber: k.tenant})
	k.ok(err)
	out := map[string]inbox.Receipt{}
	for _, r := range rs {
		out[r.Message.ID] = r
	}
	return out
}

func sealedMessages(k *K) {
	put := func(b *box, id string) {
		k.Helper()
		_, err := b.Put(k.ctx, msg(id))
		k.ok(err)
	}
	put(k.boxSealed(inbox.Options{}), "clear")
	one := k.boxSealed(inbox.Options{}, encryptionKey("e1"))
	put(one, "one")
	two := k.boxSealed(inbox.Options{KeepDone: time.Hour, KeepBody: time.Hour}, encryptionKey("e2"), encryptionKey("e1"))
	put(two, "two")
	parked, err := two.Park(k.ctx, msg("parked"), pad("parked"), inbox.ReasonConflict)
	if k.ok(err); !parked {
		k.Error("not parked")
	}
	for id, r := range k.raw() {
		want := map[string]string{"clear": "", "one": "e1", "two": "e2", "parked": "e2"}[id]
		plain := bytes.Contains(r.Message.Body, []byte("body of")) || len(r.Message.Headers) == 2
		if r.Sealed != want || plain != (want == "") {
			k.Errorf("%s is stored under %q as %q %q", id, r.Sealed, r.Message.Headers, r.Message.Body)
		}
	}
	same := func(r inbox.Receipt) {
		k.Helper()
		want := msg(r.Message.ID)
		if r.Unreadable != nil || !bytes.Equal(r.Message.Body, want.Body) || len(r.Message.Headers) != 2 || r.Message.Headers[1] != want.Headers[1] {
			k.Errorf("%s came back as %+v", want.ID, r)
		}
	}
	rs, err := two.Receipts(k.ctx, inbox.ListParams{})
	k.ok(err)
	for _, r := range rs {
		same(r)
	}
	two.fails = failing(3) // and once more each, from what a failure left
	for range 2 {
		two.once()
	}
	for _, id := range []string{"clear", "one", "two"} {
		two.effects(id, 1)
		if r := k.raw()[id]; r.Status != inbox.StatusDone || r.GoneAt.IsZero() || id != "clear" && bytes.Contains(r.Message.Body, []byte("body of")) {
			k.Errorf("after it ran: %+v", r)
		}
	}
}

func sealedMoved(k *K) {
	b := k.boxSealed(inbox.Options{}, encryptionKey("e1"))
	for _, id := range []string{"a", "b"} {
		_, err := b.Put(k.ctx, msg(id))
		k.ok(err)
	}
	stored := k.raw()
	for id, change := range map[string]func(r *inbox.Receipt){
		"moved":   func(r *inbox.Receipt) { r.Message.Body = stored["a"].Message.Body },
		"changed": func(r *inbox.Receipt) { r.Message.Body[20] ^= 1 },
		"cut":     func(r *inbox.Receipt) { r.Message.Body = r.Message.Body[:9] },
		"headers": func(r *inbox.Receipt) { r.Message.Headers[0][1] = "garbage" },
		"unknown": func(r *inbox.Receipt) { r.Sealed = "e9" },
	} {
		r := stored["b"]
		r.Message.Body, r.Message.Headers = bytes.Clone(r.Message.Body), [][2]string{r.Message.Headers[0]}
		r.Key, r.Message.ID, r.Status, r.Holds = pad(id), id, inbox.StatusStored, false
		change(&r)
		_, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Due: true})
		k.ok(err)
	}
	b.once()
	for id, r := range k.raw() {
		if r.Status != inbox.StatusParked || r.Reason != inbox.ReasonUnreadable || r.Attempts != 0 || r.Sealed == "" || len(r.Failures) != 1 {
			k.Errorf("%s: %+v", id, r)
		}
		b.effects(id, 0)
	}
	b.effects("a", 1)
	b.effects("b", 1)
	if c, err := b.Skip(k.ctx, inbox.Selection{Statuses: []inbox.Status{inbox.StatusParked}}, "no"); err != nil || c.OK != 0 || c.Failed != 5 {
		k.Errorf("%+v, %v", c, err)
	}
	// With its key back, what was only locked away runs.
	_, err := b.Put(k.ctx, msg("c"))
	k.ok(err)
	k.boxSealed(inbox.Options{}, encryptionKey("e3")).once()
	b.effects("c", 0)
	k.boxSealed(inbox.Options{}, encryptionKey("e3"), encryptionKey("e1")).retryAll()
	b.effects("c", 1)
}

// retryAll has what is parked run again.
func (b *box) retryAll() {
	b.k.Helper()
	_, err := b.Retry(b.k.ctx, inbox.Selection{}, false)
	b.k.ok(err)
	b.once()
}
