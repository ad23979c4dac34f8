package dashboard

import (
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

func TestHub(t *testing.T) {
	t.Parallel()
	ops, err := operator.New(memstore.New(memstore.Options{}), operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	all := Principal{Role: operator.RoleAdmin}
	t.Run("[operations/UI11] who is too slow is dropped, and gets all it missed when it comes back", func(t *testing.T) {
		h := newHub(ops, time.Hour)
		defer h.close()
		slow, _, _ := h.join(all, "")
		other, _, _ := h.join(all, "")
		defer h.leave(other)
		var last news
		for i := range int64(backlog + 5) {
			h.mu.Lock()
			h.tell(news{entry: operator.Entry{ID: i + 1}})
			h.mu.Unlock()
			<-other.c
		}
		n := 0
		for got := range slow.c { // closed after what it had room for
			last = got
			n++
		}
		if n != backlog {
			t.Fatal(n)
		}
		back, missed, reset := h.join(all, h.id(last))
		if back == nil || reset || len(missed) != 5 || missed[0].seq != last.seq+1 {
			t.Error(back, len(missed), reset)
		}
		h.leave(back)
	})
	t.Run("[operations/UI11] what happened while nobody watched is not known: read anew", func(t *testing.T) {
		h := newHub(ops, time.Hour)
		h.linger = 0
		defer h.close()
		c, _, _ := h.join(all, "")
		h.mu.Lock()
		h.tell(news{entry: operator.Entry{ID: 1}})
		h.mu.Unlock()
		id := h.id(<-c.c)
		h.leave(c)
		if _, _, reset := h.join(all, id); !reset {
			t.Error("nothing was missed?")
		}
		if c, _, _ := h.join(all, "x-y-z"); c == nil {
			t.Error("an id that is none is no reason to refuse")
		}
	})
	t.Run("[operations/UI11] the only one, cut off, is back before the asking ends", func(t *testing.T) {
		h := newHub(ops, time.Hour)
		defer h.close()
		c, _, _ := h.join(all, "")
		h.mu.Lock()
		h.tell(news{entry: operator.Entry{ID: 1}})
		h.mu.Unlock()
		id := h.id(<-c.c)
		h.leave(c)
		h.mu.Lock()
		h.tell(news{entry: operator.Entry{ID: 2}})
		h.mu.Unlock()
		if _, missed, reset := h.join(all, id); reset || len(missed) != 1 || missed[0].entry.ID != 2 {
			t.Error(missed, reset)
		}
	})
	t.Run("a closed hub takes nobody, and leaving twice is nothing", func(t *testing.T) {
		h := newHub(ops, time.Hour)
		c, _, _ := h.join(all, "")
		h.close()
		h.leave(c)
		if c, _, _ := h.join(all, ""); c != nil {
			t.Error("joined")
		}
	})
}

func TestSize(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, name := range []string{"assets/app.css", "assets/app.js"} {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(text)
	}
	_ = z.Close()
	if b.Len() > 60_000 {
		t.Errorf("style and script are %d bytes, gzip", b.Len())
	}
	t.Log("style and script:", b.Len(), "bytes, gzip")
}
