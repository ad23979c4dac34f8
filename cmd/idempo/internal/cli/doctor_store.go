package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/operator"
)

// store looks at the store: its schema first, then what can be asked of it.
func (d *doctor) store(ctx context.Context, s *config.Settings) {
	m, err := database.Schemas(s.Store)
	if err != nil {
		d.bad("store", "check store in the configuration", "%v", err)
		return
	}
	defer m.Close()
	st, err := m.Status(ctx)
	switch {
	case err != nil:
		d.bad("store", "check that the database runs and lets this user in", "%v", err)
		return
	case st.Newer || st.Problem != nil:
		d.bad("schema", "install the newer release", "version %d, this binary knows %d", st.Version, st.Known)
		return
	case st.Required:
		d.bad("schema", "idempo migrate up", "version %d, this binary needs %d", st.Version, st.Known)
		return
	}
	if len(st.Pending) > 0 {
		d.warn("schema", "idempo migrate up", "version %d, this binary knows %d: what was added since is missing", st.Version, st.Known)
	} else {
		d.ok("schema", "version %d", st.Version)
	}
	d.pooler(ctx, m, s.Store)
	var weak bytes.Buffer
	open := s.Store
	open.AutoMigrate, open.Strict = false, false
	store, err := database.Open(ctx, open, slog.New(slog.NewTextHandler(&weak, nil)))
	if err != nil {
		d.bad("store", "see the message", "%v", err)
		return
	}
	defer store.Close()
	if weak.Len() > 0 {
		d.bad("durability", "see the message", "%s", strings.TrimSpace(weak.String()))
	} else {
		d.ok("durability", "nothing that loses acknowledged records")
	}
	d.latency(ctx, store)
	d.rotation(ctx, store)
	d.snapshot(ctx, store)
	d.purge(ctx, store, s)
	d.doubts(ctx, store)
	d.counters(ctx, store)
}

// pooler tells whether sessions of the database are handed from client to client.
func (d *doctor) pooler(ctx context.Context, m *database.Schema, c config.Store) {
	if c.SQLite != "" {
		return
	}
	switch shared, err := m.Shared(ctx); {
	case err != nil:
		d.bad("pooler", "see the message", "%v", err)
	case shared && c.MySQL != "":
		d.bad("pooler", "lead idempo past it", "the connections lead to a pooler in transaction mode, which settings of a session do not survive")
	case shared:
		d.ok("pooler", "one in transaction mode; no state of a session outlives its transaction here")
	default:
		d.ok("pooler", "none in transaction mode")
	}
}

// latency asks five times for a key that is not there, and compares the clocks on the way.
func (d *doctor) latency(ctx context.Context, store *database.Store) {
	var took []time.Duration
	var skew time.Duration
	for range 5 {
		start := time.Now()
		r, err := store.Lookup(ctx, idempo.LookupParams{Key: idempo.Key{Tenant: "idempo", Operation: "doctor", ID: strings.Repeat("\x00", 32)}, WithoutBody: true})
		if err != nil {
			d.bad("store", "see the message", "%v", err)
			return
		}
		took = append(took, time.Since(start))
		if n := time.Since(r.Now); !r.Now.IsZero() && (skew == 0 || n.Abs() < skew.Abs()) {
			skew = n
		}
	}
	slices.Sort(took)
	if median := took[2]; median > 100*time.Millisecond {
		d.warn("latency", "bring the store nearer", "%d ms for one read", median.Milliseconds())
	} else {
		d.ok("latency", "under 100 ms for one read")
	}
	if skew.Abs() > 5*time.Second {
		d.warn("clock", "synchronise the clocks", "this machine and the store differ by %d s", skew.Abs()/time.Second)
	} else {
		d.ok("clock", "this machine and the store agree to 5 s")
	}
}

// rotation says of each digest key that makes no new records whether it can be dropped.
func (d *doctor) rotation(ctx context.Context, store *database.Store) {
	c, ok := store.Store.(operator.DigestKeyCounter)
	for _, id := range d.old {
		if !ok {
			d.warn("digest keys", "drop "+id+" once no record lives under it", "a rotation is under way")
			continue
		}
		switch n, err := c.CountDigestKey(ctx, id); {
		case err != nil:
			d.bad("digest keys", "see the message", "%v", err)
		case n == 0:
			d.warn("digest keys", "take "+id+" out of security.digest_keys in every process", "no record lives under %s: its rotation waits for the last step", id)
		default:
			d.warn("digest keys", "keep "+id+" until no record lives under it", "a rotation is under way: %d records live under %s", n, id)
		}
	}
}

// tooLong is how long a transaction elsewhere may keep the database from cleaning up, and rows from being purged.
const tooLong = 10 * time.Minute

// snapshot names who holds the oldest view of the database.
func (d *doctor) snapshot(ctx context.Context, store *database.Store) {
	s, ok := store.Store.(operator.Snapshots)
	if !ok {
		return
	}
	held, err := s.OldestSnapshot(ctx)
	who := "session " + held.Session
	if strings.Contains(held.Session, " ") { // a slot, a prepared transaction
		who = held.Session
	}
	if held.Application != "" {
		who += " (" + held.Application + ")"
	}
	age := time.Since(held.Since)
	switch {
	case err != nil:
		d.warn("snapshot", "a right to see other sessions: PROCESS on MySQL, pg_monitor on PostgreSQL", "who keeps old rows from being cleaned up cannot be seen: %v", err)
	case held.IsZero():
		d.ok("snapshot", "nobody keeps the database from cleaning up")
	case held.Since.IsZero():
		d.warn("snapshot", "drop what nobody uses", "%s keeps old rows, since when is not known", who)
	case age > tooLong:
		d.warn("snapshot", "end that transaction, and bound it: idle_in_transaction_session_timeout", "%s has a transaction open since %s: old rows stay, tables grow, an outbox waits", who, strings.TrimSuffix(ago(age), " ago"))
	default:
		d.ok("snapshot", "the oldest is that of %s, under 10 minutes old", who)
	}
}

// purge says how far the sweep is behind.
func (d *doctor) purge(ctx context.Context, store *database.Store, s *config.Settings) {
	w, ok := store.Store.(operator.Weigher)
	if !ok {
		return
	}
	every := s.Engine.SweepEvery
	if every == 0 {
		every = time.Minute
	}
	switch weight, err := w.Weigh(ctx, operator.WeighParams{}); {
	case err != nil:
		d.bad("purge", "see the message", "%v", err)
	case !weight.OldestDue.IsZero() && weight.Now.Sub(weight.OldestDue) > 10*every+tooLong:
		d.warn("purge", "run idempo serve, or Engine.Run in a process of yours: nothing sweeps this store", "what is over waits to be purged since %s",
			strings.TrimSuffix(ago(weight.Now.Sub(weight.OldestDue)), " ago"))
	default:
		d.ok("purge", "the sweep keeps up")
	}
}

// doubts counts keys in doubt, up to a page.
func (d *doctor) doubts(ctx context.Context, store *database.Store) {
	l, ok := store.Store.(operator.Lister)
	if !ok {
		return
	}
	const most = 1000
	page, err := l.List(ctx, operator.FindParams{State: idempo.StateInDoubt, Limit: most})
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			d.bad("in doubt", "see the message", "%v", err)
		}
		return
	}
	if len(page.Records) == 0 {
		d.ok("in doubt", "no key")
		return
	}
	var oldest time.Duration
	for _, r := range page.Records {
		oldest = max(oldest, r.Now.Sub(r.ChangedAt))
	}
	count := fmt.Sprint(len(page.Records))
	if page.Next != "" {
		count = fmt.Sprintf("over %d", most)
	}
	d.warn("in doubt", "idempo keys list --state in_doubt", "%s, the oldest since %s", count, strings.TrimSuffix(ago(oldest), " ago"))
}
