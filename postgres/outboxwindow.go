package postgres

import (
	"errors"
	"strconv"
	"strings"

	"github.com/idempo/idempo/outbox"
)

// window is what a cursor's text says: everything visible in older is published. low is a sequence value of which is sure
// that whoever drew it, or a lower one, is finished in older or named there as open (see events.passed: read before the
// snapshot is not enough, since one may be open that got its number after every finished one). Where newer is set, the rows between the two snapshots are being read: pass 0 the late
// ones, with seq ≤ low, pass 1 those up to high; Cursor.Seq is how far. Behind them the cursor is newer and newLow.
type window struct {
	life         string // of the server in which it was read; "": it is stored
	older        string
	low          int64
	newer        string
	newLow, high int64
	pass         int64
	lsn          string // publish only when a standby has what was written up to here
}

// nothingSeen is the snapshot in which nothing can be seen.
const nothingSeen = "1:1:"

var errWindow = errors.New("postgres: the cursor is not what this release writes")

// parseWindow reads what text and stored write; "" is the beginning.
func parseWindow(text string) (w window, err error) {
	if text == "" {
		return window{older: nothingSeen}, nil
	}
	f := strings.Split(text, " ")
	if len(f) != 3 && len(f) != 7 && len(f) != 8 || len(f) > 3 && (f[3] == "" || f[len(f)-1] == "") {
		return w, errWindow
	}
	number := func(s string) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(s, 10, 64)
		}
		return n
	}
	w.life, w.older, w.low = f[0], f[1], number(f[2])
	if len(f) > 3 {
		w.newer, w.newLow, w.high, w.pass = f[3], number(f[4]), number(f[5]), number(f[6])
	}
	if len(f) == 8 {
		w.lsn = f[7]
	}
	if err != nil || xmax(w.older) == 0 || w.newer != "" && xmax(w.newer) == 0 {
		return window{}, errWindow
	}
	return w, nil
}

// text is the window in memory.
func (w window) text() string {
	var b strings.Builder
	b.WriteString(w.life + " " + w.older + " ")
	b.WriteString(strconv.FormatInt(w.low, 10))
	if w.newer != "" {
		b.WriteString(" " + w.newer)
		for _, n := range [...]int64{w.newLow, w.high, w.pass} {
			b.WriteString(" " + strconv.FormatInt(n, 10))
		}
		if w.lsn != "" {
			b.WriteString(" " + w.lsn)
		}
	}
	return b.String()
}

// stored is the window in the table, which belongs to no life of the server.
func (w window) stored() string {
	w.life = ""
	return w.text()
}

// closed is the window when all of it was read.
func (w window) closed() window {
	return window{life: w.life, older: w.newer, low: w.newLow}
}

// ahead reports whether the window has seen transactions from next on, the first number that the server has not given.
func (w window) ahead(next uint64) bool {
	return xmax(w.older) > next || w.newer != "" && xmax(w.newer) > next
}

// xmax is the first transaction that a snapshot does not know; 0: it is no snapshot.
func xmax(snapshot string) uint64 {
	f := strings.SplitN(snapshot, ":", 3)
	if len(f) != 3 {
		return 0
	}
	n, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// late reports whether transactions were open in a snapshot.
func late(snapshot string) bool { return !strings.HasSuffix(snapshot, ":") }

// at is a cursor of the window.
func (w window) at(seq int64) outbox.Cursor { return outbox.Cursor{Window: w.text(), Seq: seq} }
