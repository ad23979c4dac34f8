package config

import (
	"fmt"
	"time"
)

// value is one checked place of a configuration: what stands there, or its default.
type value struct {
	field     *field
	parent    *value
	name      string // member name; [3] in a list
	path      string
	set       bool   // stands in the file, or was given as flag or environment mirror
	line, col int    // of the value; 0 for a default or an override
	origin    string // "flag --listen", "env IDEMPO_LISTEN"; empty: the file or the default
	sources   []string
	text      string // scalars; secrets too
	num       int64  // whole, truth (0, 1), duration (ns), size (bytes)
	any       any    // kind anything: string, json.Number, bool or nil
	members   []*value
	used      map[string]bool // on the root: shapes that were decoded
	upstream  *Override       // on the root: --upstream
}

func (v *value) root() *value {
	for v.parent != nil {
		v = v.parent
	}
	return v
}

// at returns the member of that name. It panics if the schema has no such key, which is a mistake in this package.
func (v *value) at(name string) *value {
	for _, m := range v.members {
		if m.name == name {
			r := v.root()
			if r.used == nil {
				r.used = map[string]bool{}
			}
			r.used[m.shape()] = true
			return m
		}
	}
	panic(fmt.Sprintf("config: no key %q in %q", name, v.path))
}

func (v *value) duration() time.Duration { return time.Duration(v.num) }
func (v *value) isTrue() bool            { return v.num == 1 }

// where names the place for a message that speaks of two places.
func (v *value) where() string {
	switch {
	case v.origin != "":
		return v.path + " (" + v.origin + ")"
	case v.line > 0:
		return fmt.Sprintf("%s (line %d)", v.path, v.line)
	}
	return v.path + " (default)"
}
