package postgres

import (
	"strings"
	"testing"

	"github.com/idempo/idempo/outbox"
)

func TestOutboxWindow(t *testing.T) {
	t.Parallel()
	same := func(w window) {
		t.Helper()
		got, err := parseWindow(w.text())
		if err != nil || got != w {
			t.Errorf("%+v came back as %+v, %v", w, got, err)
		}
		got, err = parseWindow(w.stored())
		if w.life = ""; err != nil || got != w {
			t.Errorf("stored %+v came back as %+v, %v", w, got, err)
		}
	}
	same(window{life: "L", older: "10:20:", low: 0})
	same(window{life: "L", older: "10:20:10,12,19", low: 1 << 40})
	same(window{life: "L", older: "10:20:10", low: 5, newer: "11:30:12", newLow: 7, high: 9, pass: 0})
	same(window{older: "1:1:", low: 0, newer: "11:30:", newLow: 0, high: 9223372036854775807, pass: 1})
	same(window{life: "L", older: "10:20:10", low: 5, newer: "11:30:12", newLow: 7, high: 9, pass: 1, lsn: "16/B374D848"})
	bad := func(text string) {
		t.Helper()
		if w, err := parseWindow(text); err == nil {
			t.Errorf("%q is %+v", text, w)
		}
	}
	bad(" ")
	bad("L 10:20:")
	bad("L 10:20: x")
	bad("L 10:20 5")
	bad("L 10:x: 5")
	bad("L 10:20: 5 11:30:")
	bad("L 10:20: 5 11:30: 7 9")
	bad("L 10:20: 5 11 7 9 1")
	bad("L 10:20: 5 11:30: 7 9 1 1/2 more")
	bad("L 10:20: 99999999999999999999")
	t.Run("the beginning sees nothing", func(t *testing.T) {
		w, err := parseWindow("")
		if err != nil || w.older != nothingSeen || w.low != 0 || w.newer != "" {
			t.Errorf("%+v, %v", w, err)
		}
	})
	t.Run("what is read to its end goes on at the newer snapshot", func(t *testing.T) {
		w := window{life: "L", older: "1:2:", low: 3, newer: "4:5:", newLow: 6, high: 7, pass: 1, lsn: "0/1"}
		if got := w.closed(); got != (window{life: "L", older: "4:5:", low: 6}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a place knows whether the server is behind it", func(t *testing.T) {
		for next, want := range map[uint64]bool{19: true, 20: false, 21: false} {
			if got := (window{older: "10:20:11"}).ahead(next); got != want {
				t.Errorf("the next number is %d: ahead %v", next, got)
			}
			if got := (window{older: "1:2:", newer: "10:20:11"}).ahead(next); got != want {
				t.Errorf("the next number is %d: the newer one is ahead: %v", next, got)
			}
		}
	})
	t.Run("open transactions are seen in a snapshot's text", func(t *testing.T) {
		for text, want := range map[string]bool{"1:1:": false, "10:20:": false, "10:20:10": true, "10:20:10,15": true} {
			if late(text) != want {
				t.Errorf("%s: %v", text, !want)
			}
		}
	})
}

func TestOutboxBatches(t *testing.T) {
	t.Parallel()
	place := func(part int, w window, seq int64) outbox.Place {
		return outbox.Place{Partition: part, Cursor: w.at(seq)}
	}
	a, b := window{life: "L", older: "10:20:", low: 4}, window{life: "L", older: "10:20:", low: 4, newer: "11:30:", newLow: 5, high: 6, pass: 1}
	all, err := batches([]outbox.Place{place(1, a, 0), place(2, b, 5), place(3, a, 0), place(4, b, 6), {Partition: 5}, place(6, b, 5)})
	if err != nil || len(all) != 4 {
		t.Fatalf("%d batches, %v", len(all), err)
	}
	for i, want := range [][]int{{1, 3}, {2, 6}, {4}, {5}} {
		if len(all[i].parts) != len(want) || all[i].parts[0] != want[0] {
			t.Errorf("batch %d is %v, want %v", i, all[i].parts, want)
		}
	}
	if _, err := batches([]outbox.Place{{Cursor: outbox.Cursor{Window: "junk"}}}); err == nil {
		t.Error("junk is a place")
	}
	t.Run("a batch that opens with another ends where that does", func(t *testing.T) {
		own := &batch{w: window{life: "L", older: "10:20:15", low: 9}}
		own.open(window{newer: "40:50:", newLow: 30, high: 99})
		if own.w.newer != "40:50:" || own.w.newLow != 30 || own.w.high != 99 || own.w.pass != 0 || own.seq != 0 {
			t.Errorf("%+v at %d", own.w, own.seq)
		}
		own = &batch{w: window{life: "L", older: "10:20:", low: 31}}
		own.open(window{newer: "40:50:", newLow: 30, high: 99})
		if own.w.newLow != 31 || own.w.pass != 1 || own.seq != 31 {
			t.Errorf("%+v at %d", own.w, own.seq)
		}
	})
}

func TestOutboxPatterns(t *testing.T) {
	t.Parallel()
	for want, globs := range map[string][]string{`orders.%`: {"orders.*"}, `a\_b`: {"a_b"}, `a.%,b.%.c`: {"a.*", "b.*.c"}} {
		if got := patterns(globs); got != want {
			t.Errorf("%v: %v, want %s", globs, got, want)
		}
	}
	for _, globs := range [][]string{nil, {"*"}, {"a", "*"}} {
		if got := patterns(globs); got != nil {
			t.Errorf("%v: %v, want all", globs, got)
		}
	}
}

func TestOutboxPack(t *testing.T) {
	t.Parallel()
	row := func(n int) outbox.Row { return outbox.Row{Event: outbox.Event{Topic: "t", Payload: make([]byte, n)}} }
	sizes := func(rows ...outbox.Row) (parts []int) {
		for from := 0; from < len(rows); {
			some, payload, next := pack(rows, from)
			total := 0
			for _, one := range some {
				if one.Size != nil {
					if one.Place != total+1 {
						t.Errorf("a payload at %d, want %d", one.Place, total+1)
					}
					total += *one.Size
				}
			}
			if len(payload) != total {
				t.Errorf("%d bytes, want %d", len(payload), total)
			}
			parts, from = append(parts, len(some)), next
		}
		return parts
	}
	equal := func(got []int, want ...int) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
	equal(sizes(row(1), row(0), outbox.Row{}, row(7)), 4)
	equal(sizes(row(appendBytes), row(1), row(1)), 1, 2)
	equal(sizes(row(64<<20), row(64<<20)), 1, 1)
	many := make([]outbox.Row, 2*appendRows+1)
	equal(sizes(many...), appendRows, appendRows, 1)
}

func FuzzOutboxWindow(f *testing.F) {
	f.Add("L 10:20:10 5 11:30:12 7 9 1 16/B374D848")
	f.Add(" 10:20: 5")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseWindow(text)
		if err != nil {
			return
		}
		again, err := parseWindow(w.text())
		if err != nil || again != w {
			t.Errorf("%q: %+v, then %+v, %v", text, w, again, err)
		}
		if strings.Count(w.text(), " ") != strings.Count(text, " ") && text != "" {
			t.Errorf("%q has become %q", text, w.text())
		}
	})
}
