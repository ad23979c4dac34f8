//go:build unix

package docblock

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/idempo/idempo/contract"
)

// section is the text below a heading of the second level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("no section %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// rows are the rows of the first table in a text, without its head.
func rows(text string) (out [][]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if len(out) > 0 {
				break
			}
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		out = append(out, cells)
	}
	if len(out) < 2 {
		return nil
	}
	return out[2:]
}

func TestDesignGuide(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(repository, "docs", "guides", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	commands, err := os.ReadFile(filepath.Join(repository, "docs", "guides", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("[operations/GS10] every subject has its section, and every line of the checklists names what checks it", func(t *testing.T) {
		for _, heading := range []string{
			"Where it is worth it",
			"PUT, POST or PATCH",
			"What one attempt is",
			"Set instead of add",
			"Natural idempotency",
			"Retention from horizons",
			"Which failures are final",
			"Three delivery semantics",
		} {
			if strings.TrimSpace(section(t, page, heading)) == "" {
				t.Errorf("%s: nothing", heading)
			}
		}
		if n := len(rows(section(t, page, "Three delivery semantics"))); n != 3 {
			t.Errorf("%d semantics", n)
		}
		var known []string
		for _, r := range contract.Rules() {
			known = append(known, r.ID)
		}
		rule := regexp.MustCompile(`\b[AC][0-9]{2}\b`)
		command := regexp.MustCompile("`(idempo [a-z ]+)`")
		proof := regexp.MustCompile(`\[test: [a-z/]+\.Test[A-Za-z]+\]`) // that it exists is checked by archtest
		for heading, want := range map[string]int{"Eight rules": 8, "Six mistakes": 6, "Before the release": 12} {
			all := rows(section(t, page, heading))
			if len(all) != want {
				t.Errorf("%s: %d lines, want %d", heading, len(all), want)
			}
			for _, line := range all {
				check := line[len(line)-1]
				named := proof.FindAllString(check, -1)
				for _, id := range rule.FindAllString(check, -1) {
					if !slices.Contains(known, id) {
						t.Errorf("%s: there is no rule %s", line[0], id)
					}
					named = append(named, id)
				}
				for _, m := range command.FindAllStringSubmatch(check, -1) {
					if !strings.Contains(string(commands), "## "+m[1]+"\n") {
						t.Errorf("%s: there is no command %s", line[0], m[1])
					}
					named = append(named, m[1])
				}
				if len(named) == 0 {
					t.Errorf("%s: nothing checks it", line[0])
				}
			}
		}
	})
}

// TestReadmeBegins: what somebody sees first, in the order in which one asks.
func TestReadmeBegins(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	at := 0
	for _, next := range []string{
		"# idempo\n",
		"**One intent, one effect",
		"```sh\ngo run ./cmd/idempo demo",
		"![The dashboard",
		"## What it promises, and what not",
		"| promise | not promised |",
		"## Where to begin",
		"## How it compares",
		"## More",
		"## Put it in front of a service",
	} {
		i := strings.Index(page[at:], next)
		if i < 0 {
			t.Fatalf("%q is not there, or not in its place", next)
		}
		at += i
	}
	if n := len(rows(section(t, page, "Where to begin"))); n != 5 {
		t.Errorf("%d ways to begin", n)
	}
	for _, m := range regexp.MustCompile(`\]\(((?:docs|bench)/[^)#]+)`).FindAllStringSubmatch(page, -1) {
		if !exists(filepath.Join(repository, m[1])) {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
}
