package sqlite

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// The two drivers whose parameters Open knows, by the names they register under.
const (
	driverModernc = "sqlite"
	driverMattn   = "sqlite3"
)

// dsn returns the data source name that makes driver open path with the durability the store needs. Settings travel
// in the name because a PRAGMA sent through a pool reaches one connection only.
func dsn(driver, path string, busy time.Duration, readOnly bool) (string, error) {
	ms := busy.Milliseconds()
	v := url.Values{}
	switch driver {
	case driverModernc:
		v["_pragma"] = []string{
			fmt.Sprintf("busy_timeout(%d)", ms), // first: the others may have to wait for a lock
			"journal_mode(WAL)", "synchronous(FULL)",
		}
		v.Set("_txlock", "immediate")
		if readOnly {
			v["_pragma"] = append(v["_pragma"], "query_only(1)")
			v.Del("_txlock")
		}
	case driverMattn:
		v.Set("_busy_timeout", fmt.Sprint(ms))
		v.Set("_journal_mode", "WAL")
		v.Set("_synchronous", "FULL")
		v.Set("_txlock", "immediate")
		if readOnly {
			v.Set("_query_only", "1")
			v.Del("_txlock")
		}
	default:
		return "", fmt.Errorf("sqlite: open: driver must be %q (modernc.org/sqlite) or %q (github.com/mattn/go-sqlite3); with another one use New", driverModernc, driverMattn)
	}
	return fileURI(path) + "?" + v.Encode(), nil
}

// fileURI writes path as SQLite's `file:` name, so that no character of it is read as a parameter.
func fileURI(path string) string {
	p := filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" {
		p = "/" + p
	}
	var b strings.Builder
	b.WriteString("file:")
	for i := range len(p) {
		switch c := p[i]; {
		case c == '%' || c == '?' || c == '#' || c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
