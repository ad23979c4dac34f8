package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FieldError is one mistake in a [Config]: where it stands and what to do about it.
type FieldError struct {
	Path    string // the file's spelling below "gateway", such as routes[2].probe.settle
	Other   string // a second place that disagrees with Path, or ""
	Problem string // what is wrong, and the fix
}

// Error gives "path: problem", with the other place in brackets.
func (e *FieldError) Error() string {
	if e.Other != "" {
		return fmt.Sprintf("%s (and %s): %s", e.Path, e.Other, e.Problem)
	}
	return e.Path + ": " + e.Problem
}

// findings collects mistakes; its methods return whether what they looked at was right.
type findings struct{ list []error }

func (f *findings) add(path, format string, args ...any) {
	f.list = append(f.list, &FieldError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

func (f *findings) pair(path, other, format string, args ...any) {
	f.list = append(f.list, &FieldError{Path: path, Other: other, Problem: fmt.Sprintf(format, args...)})
}

func (f *findings) duration(path string, d time.Duration) {
	if d < 0 {
		f.add(path, "is negative")
	}
}

func (f *findings) word(path, value string, allowed ...string) bool {
	if value == "" {
		return true
	}
	if slices.Contains(allowed, value) {
		return true
	}
	f.add(path, "is %q; write one of: %s", value, strings.Join(allowed, ", "))
	return false
}

func (f *findings) err() error { return errors.Join(f.list...) }

// at joins a path and a member.
func at(path, member string) string {
	if path == "" {
		return member
	}
	return path + "." + member
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
