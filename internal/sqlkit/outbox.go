package sqlkit

import (
	"context"
	"embed"
	"errors"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/outbox"
)

//go:embed outbox/*.sql
var outboxFiles embed.FS

// OutboxTx is a short transaction of an outbox. Statements are called by the name of their file, with pairs of the name
// of an argument and its value: string, int64, []byte or nil.
type OutboxTx interface {
	// Exec runs a statement without rows.
	Exec(name string, args ...any) error
	// Each runs a query and row for each of its rows.
	Each(name string, row func(scan func(...any) error) error, args ...any) error
	// Now is the store's clock, read when it is called.
	Now() (time.Time, error)
}

// OutboxDB is what differs between databases. All are safe for concurrent use, but for what is of one OutboxTx.
type OutboxDB struct {
	// Parts is how many partitions a group has here.
	Parts int
	// Within runs fn in a transaction of its own, once more where the database gave it up.
	Within func(ctx context.Context, op string, fn func(OutboxTx) error) error
	// Identity names the database; "": it has no name. It fails where the cursors of a group are ahead of it.
	Identity func(tx OutboxTx, cursors []OutboxCursor) (string, error)
	// Wake makes sure that places in memory can be told from those of before a crash. void: they are of before one.
	Wake func(tx OutboxTx) (void bool, err error)
	// Loaded makes a place in memory of a stored one.
	Loaded func(c outbox.Cursor) outbox.Cursor
	// Newest is the place behind everything that is there, as it is stored, read before a transaction begins.
	Newest func(ctx context.Context) (outbox.Cursor, error)
	// Advance stores places that are still owner's, who lives, and returns the partitions that are, also where there was
	// nothing to store. They stay owner's until the end of the transaction. now is the test's clock.
	Advance func(tx OutboxTx, group, owner string, to []outbox.Place, now time.Time) (mine map[int]bool, err error)
	// Reading runs fn where nothing is written, and nothing locked: each statement by itself, also on a standby.
	Reading func(ctx context.Context, op string, fn func(OutboxTx) error) error
	// Around fills in what the database says of itself: identity, standby, the size of the log, what holds the horizon.
	Around func(tx OutboxTx, s *outbox.Status) error
	// Adopt makes the cursors of all groups that were published from another database fit this one: what is not published is
	// set aside as queued. It is called first in its transaction.
	Adopt func(tx OutboxTx, now time.Time) error
	// Audited adds a row to the audit.
	Audited func(tx OutboxTx, a OutboxAudit) error
}

// OutboxAudit is a row of the audit about an outbox.
type OutboxAudit struct {
	outbox.Audit
	At                    time.Time
	Action, Outcome, Code string
	Tenant, Operation     string // what it was done to
	ID                    []byte // nil: all of it
	Before, After         string
	Evidence              string
}

// OutboxCursor is a row of table outbox_cursors.
type OutboxCursor struct {
	Part   int
	Owner  string
	Fence  int64
	Starts int
	Cursor outbox.Cursor // as it is stored
}

// Outbox is what all outboxes over SQL have in common: leases, what is set aside, groups. The log itself, its cursors and
// its slots are the store's.
type Outbox struct{ DB OutboxDB }

// OutboxWords are what a dialect says differently: the replacement of {lock}, of {list column argument}, and how an
// event's row is read.
type OutboxWords struct {
	Lock string                               // behind a select
	List func(column, argument string) string // the column is one of the integers in the argument, separated by commas
}

// OutboxQueries adds the statements that all outboxes have to those of a store, whose own win. Names are not filled in.
func OutboxQueries(w OutboxWords, n Names, own map[string]string) error {
	entries, err := outboxFiles.ReadDir("outbox")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, _ := strings.CutSuffix(e.Name(), ".sql")
		if _, there := own[name]; there {
			continue
		}
		b, err := outboxFiles.ReadFile("outbox/" + e.Name())
		if err != nil {
			return err
		}
		fill := func(lock string) string {
			return strings.NewReplacer("{lock}", lock, "{asides}", asideColumns, "{bare asides}", strings.Replace(asideColumns, ", payload,", ", null,", 1),
				"{list part}", w.List("part", "$parts")).Replace(Strip(string(b)))
		}
		if own[name], err = n.Expand(fill(w.Lock), nil); err != nil {
			return err
		}
		if own[name+"_plain"], err = n.Expand(fill(""), nil); err != nil {
			return err
		}
	}
	return nil
}

// group is a row of table outbox_groups.
type group struct {
	name         string
	topics       []string
	external     bool
	slot         string
	epoch        int64
	paused       bool
	pausedTopics []string
	identity     string
	createdAt    time.Time
}

// readGroup reads a group; false: there is none. query outbox_group locks it, outbox_group_plain does not.
func readGroup(tx OutboxTx, query, name string) (g group, found bool, err error) {
	err = tx.Each(query, func(scan func(...any) error) error {
		var topics, pausedTopics string
		var external, paused, at int64
		found = true
		err := scan(&topics, &external, &g.slot, &g.epoch, &paused, &pausedTopics, &g.identity, &at)
		g.name, g.topics, g.pausedTopics = name, strings.Fields(topics), strings.Fields(pausedTopics)
		g.external, g.paused, g.createdAt = external != 0, paused != 0, time.UnixMicro(at).UTC()
		return err
	}, "group", name)
	return g, found, err
}

// OutboxGroups are the settings of all groups.
func OutboxGroups(tx OutboxTx) (all []outbox.GroupStatus, err error) {
	names, err := groupNames(tx)
	for _, name := range names {
		var g group
		if err == nil {
			g, _, err = readGroup(tx, "outbox_group_plain", name)
			all = append(all, outbox.GroupStatus{Name: g.name, Topics: g.topics, External: g.external, Slot: g.slot})
		}
	}
	return all, err
}

// change writes the group.
func (g group) change(tx OutboxTx) error {
	return tx.Exec("outbox_group_change", "group", g.name, "topics", strings.Join(g.topics, " "), "epoch", g.epoch, "paused", flag(g.paused),
		"paused_topics", strings.Join(g.pausedTopics, " "), "identity", g.identity)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// readState reads and locks the outbox's one row.
func readState(tx OutboxTx) (environment string, err error) {
	err = tx.Each("outbox_state", func(scan func(...any) error) error { return scan(&environment) })
	return environment, err
}

func readCursors(tx OutboxTx, query, group string) (all []OutboxCursor, err error) {
	err = tx.Each(query, func(scan func(...any) error) error {
		var c OutboxCursor
		var part, starts int64
		err := scan(&part, &c.Owner, &c.Fence, &starts, &c.Cursor.Window, &c.Cursor.Seq)
		c.Part, c.Starts = int(part), int(starts)
		all = append(all, c)
		return err
	}, "group", group)
	return all, err
}

// nowOf is the clock of a call: the test's, or the store's.
func nowOf(tx OutboxTx, given time.Time) (time.Time, error) {
	if !given.IsZero() {
		return given.Truncate(time.Microsecond).UTC(), nil
	}
	return tx.Now()
}

func invalid(op, hint string) error {
	return &idempo.Error{Op: op, Code: "invalid", Hint: hint, Err: errors.New(hint)}
}
