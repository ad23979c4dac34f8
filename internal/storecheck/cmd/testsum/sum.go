package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

// sum is what a run came to.
type sum struct {
	passed, failed int
	skipped        []skip
	tests          map[string]*test // by package and test
	builds         map[string][]string
}

// skip is a test that did not run.
type skip struct{ pkg, name, reason string }

// test is one test or subtest, or a package (with an empty name), while it runs.
type test struct {
	output []string
	began  bool // else only a piece of a name with slashes
	parent bool // it has subtests
	failed bool // one of them, or it, failed
}

// read follows the events of in until it ends, and writes to out what is worth seeing at once.
func read(in io.Reader, out io.Writer) (*sum, error) {
	s := &sum{tests: map[string]*test{}, builds: map[string][]string{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(out, "%s", line) // go test itself complains in plain text
			} else {
				s.take(e, out)
			}
		}
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return s, fmt.Errorf("read test events: %w", err)
		}
	}
}

func (s *sum) at(pkg, name string) *test {
	id := pkg + "\x00" + name
	if s.tests[id] == nil {
		s.tests[id] = &test{}
	}
	return s.tests[id]
}

func (s *sum) take(e event, out io.Writer) {
	t := s.at(e.Package, e.Test)
	switch e.Action {
	case "build-output":
		s.builds[e.ImportPath] = append(s.builds[e.ImportPath], e.Output)
	case "build-fail":
		fmt.Fprintf(out, "%s", strings.Join(s.builds[e.ImportPath], ""))
	case "run":
		t.began = true
		if i := strings.LastIndex(e.Test, "/"); i > 0 {
			s.at(e.Package, e.Test[:i]).parent = true
		}
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // RUN, PAUSE, CONT
			t.output = append(t.output, short(e.Output))
		}
	case "pass", "fail", "skip":
		s.end(e, t, out)
		delete(s.tests, e.Package+"\x00"+e.Test)
	}
}

// end counts what ended. A name of a test may itself hold slashes, so a parent is marked level by level.
func (s *sum) end(e event, t *test, out io.Writer) {
	if e.Test == "" {
		s.endPackage(e, t, out)
		return
	}
	switch {
	case e.Action == "skip":
		s.skipped = append(s.skipped, skip{e.Package, e.Test, reason(t.output)})
	case e.Action == "fail":
		for up := e.Test; ; {
			i := strings.LastIndex(up, "/")
			if i < 0 {
				break
			}
			up = up[:i]
			s.at(e.Package, up).failed = true
		}
		s.at(e.Package, "").failed = true
		if !t.parent || !t.failed {
			s.failed++
		}
		fmt.Fprintf(out, "%s", strings.Join(t.output, ""))
	case !t.parent:
		s.passed++
	}
}

func (s *sum) endPackage(e event, t *test, out io.Writer) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(out, "ok    %s %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		if !t.failed {
			s.failed++
			fmt.Fprintf(out, "%s", strings.Join(t.output, ""))
		}
		s.unended(e.Package, out)
		fmt.Fprintf(out, "FAIL  %s %.1fs\n", e.Package, e.Elapsed)
	}
}

// unended names the tests of pkg that never came to an end, as after a panic or at the time limit, with the start of what
// was printed last.
func (s *sum) unended(pkg string, out io.Writer) {
	for _, id := range slices.Sorted(maps.Keys(s.tests)) {
		name, ok := strings.CutPrefix(id, pkg+"\x00")
		if !ok || name == "" || !s.tests[id].began {
			continue
		}
		fmt.Fprintf(out, "--- did not end: %s\n", name)
		output := s.tests[id].output
		if i := slices.IndexFunc(output, func(l string) bool { return strings.HasPrefix(l, "panic:") }); i >= 0 {
			fmt.Fprintf(out, "%s", strings.Join(output[i:min(i+40, len(output))], ""))
		}
		delete(s.tests, id)
	}
}

// reason is what the test said when it skipped, without the place: the last line "    x_test.go:12: why".
func reason(output []string) string {
	for _, l := range slices.Backward(output) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "--- ") {
			continue
		}
		if _, why, ok := strings.Cut(l, ".go:"); ok {
			if _, why, ok = strings.Cut(why, ": "); ok {
				return why
			}
		}
		return l
	}
	return "no reason given"
}

// short cuts a line that nobody could read.
func short(line string) string {
	const most = 600
	if len(line) <= most {
		return line
	}
	return fmt.Sprintf("%s… (%d bytes)\n", strings.ToValidUTF8(line[:most], ""), len(line))
}

// print writes the end of the report: skips first, the counts last.
func (s *sum) print(out io.Writer) {
	fmt.Fprintln(out)
	for _, k := range s.skipped {
		fmt.Fprintf(out, "skipped: %s %s: %s\n", k.pkg, k.name, k.reason)
	}
	if len(s.skipped) == 0 {
		fmt.Fprintln(out, "skipped: none")
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skipped))
}
