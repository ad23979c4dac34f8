package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxOutside bounds a file that a value is read from.
const maxOutside = 64 << 10

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// outside reads values that do not stand in the configuration file itself.
type outside struct {
	dir    string // relative paths count from here
	lookup func(name string) (string, bool)
}

// expand replaces ${env:NAME}, ${NAME} and ${file:PATH} in s; $${ is a literal ${. What comes from outside is not expanded
// again. sources names what was read ("env NAME", "file PATH"); open holds the files that others can read.
// Errors name the variable or file and never hold a value.
func (o outside) expand(s string) (out string, sources, open []string, err error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), sources, open, nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return "", nil, nil, errors.New("${ without }: write $${ for a literal ${")
		}
		ref := s[i+2 : i+end]
		s = s[i+end+1:]
		how, name, ok := strings.Cut(ref, ":")
		if !ok {
			how, name = "env", ref
		}
		v, readable, err := o.read(how, name)
		if err != nil {
			return "", nil, nil, err
		}
		if readable {
			open = append(open, name)
		}
		sources = append(sources, how+" "+name)
		b.WriteString(v)
	}
}

// read returns the value of one reference. open says that others than owner and group may read the file it came from.
func (o outside) read(how, name string) (v string, open bool, err error) {
	switch how {
	case "env":
		if !envName.MatchString(name) {
			return "", false, fmt.Errorf("not a name of an environment variable: %q", name)
		}
		v, ok := o.lookup(name)
		switch {
		case !ok:
			return "", false, fmt.Errorf("environment variable %s is not set", name)
		case v == "":
			return "", false, fmt.Errorf("environment variable %s is empty", name)
		}
		return v, false, nil
	case "file":
		return o.readFile(name)
	}
	return "", false, fmt.Errorf("unknown reference %q: write ${env:NAME} or ${file:PATH}, or $${ for a literal ${", how)
}

func (o outside) readFile(name string) (v string, open bool, err error) {
	f, err := os.Open(o.path(name))
	if err != nil {
		return "", false, fmt.Errorf("file %s cannot be read: %w", name, reason(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", false, fmt.Errorf("file %s cannot be read: %w", name, reason(err))
	}
	if !st.Mode().IsRegular() {
		return "", false, fmt.Errorf("file %s cannot be read: not a regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxOutside+1))
	if err != nil {
		return "", false, fmt.Errorf("file %s cannot be read: %w", name, reason(err))
	}
	if len(b) > maxOutside {
		return "", false, fmt.Errorf("file %s is over 64 KiB", name)
	}
	s := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if s == "" {
		return "", false, fmt.Errorf("file %s is empty", name)
	}
	return s, worldReadable(st), nil
}

// path resolves a path of the configuration file against the folder of that file.
func (o outside) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(o.dir, p)
}

// reason is the cause without the path, which the caller has named as the user wrote it.
func reason(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
