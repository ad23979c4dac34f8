package storecheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/storetest"
)

// outboxStore is a store with transactions and an outbox.
type outboxStore interface {
	idempo.Store
	idempo.Transactor
	idempo.Joiner
	outbox.Opener
}

// logReader is a relay without a publisher: it holds all partitions and reads what comes.
type logReader struct {
	t     testing.TB
	s     outbox.Store
	group string
	owner string
	at    map[int]outbox.Place
	epoch int64
}

func newLogReader(t testing.TB, s outboxStore, group string) *logReader {
	t.Helper()
	log, _ := s.Outbox()
	r := &logReader{t: t, s: log, group: group, owner: "reader-" + group}
	r.hold()
	return r
}

// hold begins again at what is stored.
func (r *logReader) hold() {
	r.t.Helper()
	h, err := r.s.Hold(r.t.Context(), outbox.HoldParams{Group: r.group, Topics: []string{"*"}, Owner: r.owner, From: outbox.FromBeginning, Lease: time.Hour, Want: outbox.Partitions})
	must(r.t, err)
	if len(h.Leases) != h.Total || h.Total == 0 {
		r.t.Fatalf("holds %d of %d partitions", len(h.Leases), h.Total)
	}
	r.at, r.epoch = map[int]outbox.Place{}, h.Epoch
	for _, l := range h.Leases {
		r.at[l.Partition] = outbox.Place{Partition: l.Partition, Fence: l.Fence, Cursor: l.Cursor}
	}
}

// reconnect begins again once the server answers: connections of before may have to find out that they are dead.
func (r *logReader) reconnect() {
	r.t.Helper()
	for {
		_, err := r.s.Hold(r.t.Context(), outbox.HoldParams{Group: r.group, Topics: []string{"*"}, Owner: r.owner, Lease: time.Hour})
		if err == nil {
			break
		}
		select {
		case <-r.t.Context().Done():
			r.t.Fatal(err)
		case <-time.After(10 * time.Millisecond): // the server is starting
		}
	}
	r.hold()
}

func (r *logReader) places() (all []outbox.Place) {
	for part := range outbox.Partitions {
		if p, ok := r.at[part]; ok {
			all = append(all, p)
		}
	}
	return all
}

// page reads one page and goes on behind it.
func (r *logReader) page(rows, bytes int) outbox.Page {
	r.t.Helper()
	page, err := r.s.Read(r.t.Context(), outbox.ReadParams{Group: r.group, From: r.places(), Topics: []string{"*"}, MaxRows: rows, MaxBytes: bytes})
	must(r.t, err)
	for _, n := range page.Next {
		p := r.at[n.Partition]
		p.Cursor = n.Cursor
		r.at[n.Partition] = p
	}
	return page
}

// store stores how far it has read.
func (r *logReader) store() {
	r.t.Helper()
	m, err := r.s.Move(r.t.Context(), outbox.MoveParams{Group: r.group, Owner: r.owner, To: r.places()})
	must(r.t, err)
	if len(m.Lost) > 0 {
		r.t.Fatalf("lost %v", m.Lost)
	}
}

// all reads until a page says that there is no more.
func (r *logReader) all(rows int) (found []outbox.Row) {
	r.t.Helper()
	for {
		page := r.page(rows, 1<<20)
		found = append(found, page.Rows...)
		if !page.More && len(page.Rows) == 0 {
			return found
		}
	}
}

func newBox(t testing.TB, s outboxStore) *outbox.Outbox {
	t.Helper()
	b, err := outbox.New(s, outbox.Options{Source: "/test"})
	must(t, err)
	return b
}

var errUndo = errors.New("undo")

// writers append from several goroutines until stop is closed: one to five events a transaction, of few keys, some rolled
// back, some open for a while. They return by key the events in the order of their commits.
func writers(t *testing.T, b *outbox.Outbox, n int, stop <-chan struct{}, wait func(*rand.Rand)) (committed func() map[string][]string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	locks := map[string]*sync.Mutex{}
	byKey := map[string][]string{}
	for k := range 7 {
		locks[fmt.Sprint("k", k)] = new(sync.Mutex)
	}
	for w := range n {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint("k", rnd.IntN(7))
				if rnd.IntN(4) == 0 {
					key = ""
				}
				var ids []string
				undo := rnd.IntN(5) == 0
				if key != "" {
					locks[key].Lock() // so that this test knows the order, too
				}
				err := b.Do(context.Background(), func(ctx context.Context) error {
					ids = nil
					wait(rnd)
					for range 1 + rnd.IntN(5) {
						got, err := b.Append(ctx, outbox.Event{Topic: "t", Key: key, Type: "T", Payload: []byte("x")})
						if err != nil {
							return err
						}
						ids = append(ids, got...)
						wait(rnd)
					}
					if undo {
						return errUndo
					}
					return nil
				})
				if err == nil {
					mu.Lock()
					byKey[key] = append(byKey[key], ids...)
					mu.Unlock()
				} else if !errors.Is(err, errUndo) {
					t.Error(err)
				}
				if key != "" {
					locks[key].Unlock()
				}
			}
		})
	}
	return func() map[string][]string {
		wg.Wait()
		return byKey
	}
}

// readEverything reads beside writers, and wants every committed event once and in order.
func readEverything(t *testing.T, s outboxStore, atLeast int) {
	t.Helper()
	readEverythingOf(t, s, "main", atLeast)
}

func readEverythingOf(t *testing.T, s outboxStore, group string, atLeast int) {
	t.Helper()
	b := newBox(t, s)
	r := newLogReader(t, s, group)
	r.all(1000) // what others have left
	stop := make(chan struct{})
	committed := writers(t, b, 6, stop, func(rnd *rand.Rand) {
		if rnd.IntN(10) == 0 {
			time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond) // an open transaction, not a wait of the test
		}
	})
	var found []outbox.Row
	for i := 0; len(found) < atLeast; i++ {
		found = append(found, r.page(1+i%50, 1<<20).Rows...)
		if i%7 == 0 {
			r.store()
		}
		if i%23 == 0 {
			r.store()
			r.hold()
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	want := committed()
	found = append(found, r.all(100)...)
	got, seen := map[string][]string{}, map[string]bool{}
	for _, row := range found {
		if seen[row.ID] {
			t.Errorf("read twice: %s of key %q, seq %d", row.ID, row.Key, row.Seq)
		}
		seen[row.ID] = true
		got[row.Key] = append(got[row.Key], row.ID)
	}
	n := 0
	for key, ids := range want {
		n += len(ids)
		if key != "" && fmt.Sprint(got[key]) != fmt.Sprint(ids) {
			t.Errorf("key %q: read %d, committed %d, or in another order", key, len(got[key]), len(ids))
		}
		for _, id := range ids {
			if !seen[id] {
				t.Errorf("key %q: %s was committed and not read", key, id)
			}
		}
	}
	if n != len(found) {
		t.Errorf("read %d events, %d were committed", len(found), n)
	}
}

func TestPostgresOutboxReadsEverything(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run("[messages/O2] "+o.name, func(t *testing.T) {
			t.Parallel()
			p := o.open(t, dsn, migrated(t, dsn, postgres.Options{}))
			readEverything(t, p.Store, 3000)
		})
	}
}

// A page that only ends what an earlier one began says that there is more: whoever stops at "no more" would leave events behind.
func TestPostgresOutboxEndOfWindow(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	p := openPgx(t, dsn, migrated(t, dsn, postgres.Options{}))
	b, r := newBox(t, p.Store), newLogReader(t, p.Store, "main")
	for i := range 5 {
		must(t, appendOne(t.Context(), b, "k", fmt.Sprint(i, " a")))
		wantBodies(t, "a page of one row", r.page(1, 1<<20).Rows, fmt.Sprint(i, " a"))
		must(t, appendOne(t.Context(), b, "k", fmt.Sprint(i, " b")))
		wantBodies(t, "until there is no more", r.all(10), fmt.Sprint(i, " b"))
	}
}

func TestPostgresOutboxKit(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			c := kitCaps(t)
			c.Lanes = true
			through := dsn
			if o.name == "pgx" { // transactions beside each other need more connections than a small machine's default
				through = withParam(t, dsn, "pool_max_conns", "12")
			}
			storetest.RunOutbox(t, func(t testing.TB) storetest.Subject { return o.subjectOn(t, dsn, through) }, c)
		})
	}
}
