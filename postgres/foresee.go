package postgres

import (
	"context"
	"slices"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/sqlkit"
)

var _ inbox.Foreseer = receipts{}

// foreseen is what one flight for many keys said of one of them: exactly what its claim would have asked for itself. It is
// used once.
type foreseen struct {
	ids []string // the digests that were asked about
	l   locking
	r   rows
}

// ahead reports whether it is worth to look ahead in t: it is one of InTx, and the port sends many statements at once.
func (s *Store) ahead(t *session) bool {
	_, ok := s.port.(Pipeline)
	return ok && t != nil && t.own
}

// alive reports whether the transaction, which is begun, is still there: what was foreseen in it counts only then. t is locked.
func (t *session) alive() bool {
	p, ok := t.store.port.(Pipeline)
	return ok && t.tx != nil && p.Alive(t.tx) == nil
}

// taken returns what was foreseen of a claim of ids, and forgets it; nil where that was of other digests. t is locked.
func (t *session) taken(key idempo.Key, ids []string) *foreseen {
	if len(t.foreseen) == 0 || !t.alive() {
		return nil
	}
	key.ID = ids[0]
	f := t.foreseen[key]
	delete(t.foreseen, key)
	if f == nil || !slices.Equal(f.ids, ids) {
		return nil
	}
	return f
}

// Foresee is what idempo.Engine.Foresee asks for: the locks and reads of all claims in one flight, where the port has such (idempgx); else
// it does nothing. What is read stays true: whoever else wants such a key meets its lock.
func (s *Store) Foresee(ctx context.Context, ps []idempo.AcquireParams) error {
	t, err := s.enter(ctx, "acquire", idempo.Key{})
	if err != nil || !s.ahead(t) || len(ps) < 2 {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := make(map[idempo.Key]*foreseen, len(ps))
	all := make([]*foreseen, 0, len(ps))
	var statements []Statement
	for _, p := range ps {
		ids := sqlkit.Digests(p)
		k := idempo.Key{Tenant: p.Key.Tenant, Operation: p.Key.Operation, ID: ids[0]}
		if seen[k] != nil || t.find(p.Key, ids) != nil {
			continue
		}
		f := &foreseen{ids: ids}
		seen[k] = f
		all = append(all, f)
		statements = append(statements, s.locking(t, p, ids, &f.l, t.tx == nil && len(all) == 1), s.reading(&f.r, p.Key, ids, p.Now))
	}
	if len(all) == 0 {
		return nil
	}
	if err := s.inSession(ctx, t, &all[0].l, statements...); err != nil {
		return failed("acquire", idempo.Key{}, err, true)
	}
	if err := s.servers.check(all[0].l.server, func(st Statement) error { return s.port.Run(ctx, t.tx, st) }, s.q); err != nil {
		return failed("acquire", idempo.Key{}, err, true)
	}
	t.foreseen = seen
	return nil
}

// entry names what Enter is asked about.
type entry struct{ tenant, subscriber, key, lane string }

// Foresee implements inbox.Foreseer: what Enter would say of all, in one flight. What this transaction changes in a lane, or
// about a receipt, is asked for again.
func (r receipts) Foresee(ctx context.Context, ps []inbox.EnterParams) error {
	t, err := r.s.enter(ctx, "enter", idempo.Key{})
	if err != nil || !r.s.ahead(t) || len(ps) < 2 {
		return err
	}
	var statements []Statement
	seen := make(map[entry]*entering, len(ps))
	for _, p := range ps {
		e := &entering{}
		seen[entry{p.Tenant, p.Subscriber, p.Key, p.Lane}] = e
		statements = append(statements, r.entering(p, e)...)
	}
	if err := r.run(ctx, "enter", statements...); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = seen
	return nil
}

// entered returns what was foreseen of p, and forgets it.
func (t *session) entered(p inbox.EnterParams) *entering {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) == 0 || !t.alive() {
		return nil
	}
	k := entry{p.Tenant, p.Subscriber, p.Key, p.Lane}
	e := t.entries[k]
	delete(t.entries, k)
	return e
}

// changed forgets what was foreseen of a lane and of a receipt: t changes it.
func (t *session) changed(lane, key string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.entries {
		if lane != "" && k.lane == lane || key != "" && k.key == key {
			delete(t.entries, k)
		}
	}
}
