package sqlite

import (
	"cmp"
	"fmt"
	"regexp"
	"time"
)

// DefaultPrefix leads the names of all tables and indexes unless Options.Prefix says otherwise.
const DefaultPrefix = "idempo_"

// maxBusy is the longest legal Options.BusyTimeout.
const maxBusy = time.Hour

var validPrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// Options are the settings of a Store. The zero value is right for almost everybody.
type Options struct {
	// Prefix leads the names of all tables and indexes: `[a-z_][a-z0-9_]{0,39}`. Two prefixes in one file are two
	// stores. Default DefaultPrefix.
	Prefix string
	// BusyTimeout is how long a statement waits for another process that holds the write lock. Default 5 s, at least
	// 1 ms, at most an hour. Within one process writers queue and never wait by polling.
	BusyTimeout time.Duration
	// Readers is how many connections Open keeps for reading beside the one that writes. Default 4. New ignores it.
	Readers int
}

func (o Options) withDefaults() (Options, error) {
	if o.BusyTimeout < 0 || o.Readers < 0 {
		return o, fmt.Errorf("sqlite: options: busy timeout and readers must not be negative")
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.BusyTimeout = cmp.Or(o.BusyTimeout, 5*time.Second)
	o.Readers = cmp.Or(o.Readers, 4)
	if !validPrefix.MatchString(o.Prefix) {
		return o, fmt.Errorf("sqlite: options: prefix must match %s", validPrefix)
	}
	if o.BusyTimeout < time.Millisecond || o.BusyTimeout > maxBusy {
		return o, fmt.Errorf("sqlite: options: busy timeout must be 1ms to %s", maxBusy)
	}
	return o, nil
}
