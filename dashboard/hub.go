package dashboard

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

const (
	maxClients = 200
	ringSize   = 1000
	backlog    = 16 // news that a client may be behind with
)

// news is one event of the stream: an operator did something, or the numbers of the store changed.
type news struct {
	seq   int64
	stats *operator.Stats // nil: entry counts
	group string          // of stats: whom they are for
	entry operator.Entry
}

// hub asks the store for everybody who watches: one question, however many there are. It asks nothing once nobody does.
type hub struct {
	ops   *operator.Service
	every time.Duration
	epoch string

	mu      sync.Mutex
	clients map[*client]bool
	ring    []news
	seq     int64
	asking  context.CancelFunc // nil: nobody watches
	linger  time.Duration      // that the asking goes on after the last one left
	idle    *time.Timer        // ends it; nil: somebody watches
	nudge   chan struct{}
	done    sync.WaitGroup
	closed  bool
	groups  map[string]*group // tenants asked for
	seen    map[int64]bool    // audit rows that were told
}

// group are those who see the same tenants.
type group struct {
	by   Principal
	last string // what was told
	n    int    // clients
}

// client is one open stream.
type client struct {
	by    Principal
	group string
	c     chan news
}

func newHub(ops *operator.Service, every time.Duration) *hub {
	return &hub{ops: ops, every: every, epoch: rand.Text()[:8], clients: map[*client]bool{}, nudge: make(chan struct{}, 1), groups: map[string]*group{}, linger: heartbeat}
}

func groupOf(by Principal) string {
	if by.Tenants == nil {
		return "*"
	}
	all := slices.Clone(by.Tenants)
	slices.Sort(all)
	return fmt.Sprintf("%q", all)
}

// join opens a stream. after is the id of the last event that the client has; what came since is in missed. reset says that nobody
// knows what it missed: it shall read the page anew. nil: there are too many.
func (h *hub) join(by Principal, after string) (c *client, missed []news, reset bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.clients) >= maxClients {
		return nil, nil, false
	}
	c = &client{by: by, group: groupOf(by), c: make(chan news, backlog)}
	h.clients[c] = true
	g := h.groups[c.group]
	if g == nil {
		g = &group{by: Principal{Role: operator.RoleViewer, Tenants: by.Tenants}}
		h.groups[c.group] = g
	}
	g.n++
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	if h.asking == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.asking, h.seen = cancel, nil
		h.done.Go(func() { h.watch(ctx) })
	}
	if after == "" {
		return c, nil, false
	}
	epoch, text, _ := strings.Cut(after, "-")
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch != h.epoch || seq > h.seq || len(h.ring) > 0 && seq < h.ring[0].seq-1 || len(h.ring) == 0 && seq < h.seq {
		return c, nil, true
	}
	for _, n := range h.ring {
		if n.seq > seq && c.wants(n) {
			missed = append(missed, n)
		}
	}
	return c, missed, false
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// leave ends a stream. The last one that leaves ends the asking.
func (h *hub) leave(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.clients[c] {
		return
	}
	h.drop(c)
}

func (h *hub) drop(c *client) {
	delete(h.clients, c)
	close(c.c)
	if g := h.groups[c.group]; g != nil {
		if g.n--; g.n == 0 {
			delete(h.groups, c.group)
		}
	}
	switch {
	case len(h.clients) > 0 || h.asking == nil:
	case h.linger == 0 || h.closed:
		h.rest()
	default: // who was cut off, or turns a page, is back soon
		h.idle = time.AfterFunc(h.linger, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.clients) == 0 {
				h.rest()
			}
		})
	}
}

// rest ends the asking. What happens unwatched is missed: who comes back reads anew.
func (h *hub) rest() {
	if h.asking != nil {
		h.asking()
	}
	h.asking, h.ring = nil, nil
	h.seq++
}

// close ends all streams and waits for the asking to end.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for c := range h.clients {
		h.drop(c)
	}
	if h.idle != nil {
		h.idle.Stop()
	}
	h.rest()
	h.mu.Unlock()
	h.done.Wait()
}

// wake asks at once: somebody has just done something.
func (h *hub) wake() {
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

func (c *client) wants(n news) bool {
	if n.stats != nil {
		return n.group == c.group
	}
	return c.by.Tenants == nil || slices.Contains(c.by.Tenants, n.entry.Key.Tenant)
}

// watch asks until nobody watches any more.
func (h *hub) watch(ctx context.Context) {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		h.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-h.nudge:
		}
	}
}

// ask looks for news once. What the store does not answer is asked again next time.
func (h *hub) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h.mu.Lock()
	todo := map[string]Principal{}
	for name, g := range h.groups {
		todo[name] = g.by
	}
	h.mu.Unlock()
	if entries, err := h.entries(ctx); err == nil {
		h.tellEntries(ctx, entries)
	}
	for name, by := range todo {
		stats, err := h.ops.Stats(ctx, operator.StatsParams{By: by})
		if err == nil {
			h.tellStats(ctx, name, stats)
		}
	}
}

// entries are the newest audit rows, at least back to one that was told already.
func (h *hub) entries(ctx context.Context) (all []operator.Entry, err error) {
	h.mu.Lock()
	seen := h.seen
	h.mu.Unlock()
	find := operator.AuditParams{Newest: true, Limit: 200}
	for {
		page, err := h.ops.Audit(ctx, operator.ReadAuditParams{By: Principal{Role: operator.RoleViewer}, Find: find})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		known := slices.ContainsFunc(page.Entries, func(e operator.Entry) bool { return seen[e.ID] })
		if page.Next == "" || len(seen) == 0 || known || len(all) > 2*ringSize { // beyond the ring a client reads anew
			return all, nil
		}
		find.After = page.Next
	}
}

// tellEntries passes on the rows that were not told yet, the oldest first. The first look only learns what there is.
func (h *hub) tellEntries(ctx context.Context, newest []operator.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	first := h.seen == nil
	seen := make(map[int64]bool, len(newest))
	for _, e := range slices.Backward(newest) {
		if !first && !h.seen[e.ID] {
			h.tell(news{entry: e})
		}
		seen[e.ID] = true
	}
	h.seen = seen
}

func (h *hub) tellStats(ctx context.Context, name string, s operator.Stats) {
	text := fmt.Sprint(s.Counts, s.OldestInDoubt, s.OldestPending)
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.groups[name]
	if g == nil || g.last == text || ctx.Err() != nil {
		return
	}
	g.last = text
	h.tell(news{stats: &s, group: name})
}

// tell gives n to everybody who wants it. Who is too far behind is dropped, and comes back where it was.
func (h *hub) tell(n news) {
	h.seq++
	n.seq = h.seq
	if h.ring = append(h.ring, n); len(h.ring) > ringSize {
		h.ring = slices.Delete(h.ring, 0, len(h.ring)-ringSize)
	}
	for c := range h.clients {
		if !c.wants(n) {
			continue
		}
		select {
		case c.c <- n:
		default:
			h.drop(c)
		}
	}
}

func (h *hub) id(n news) string { return h.epoch + "-" + strconv.FormatInt(n.seq, 10) }

// doubt is how many keys are in doubt, for the badge of a page that does not know; 0 where the store does not say.
func (h *hub) doubt(ctx context.Context, by Principal) int64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stats, err := h.ops.Stats(ctx, operator.StatsParams{By: by})
	if err != nil {
		return 0
	}
	return stats.Of(idempo.StateInDoubt).Records
}
