//go:build unix

package docblock

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "copy Go blocks from the examples into the pages")

const repository = "../../.."

// pages are README.md and the guides.
func pages(t *testing.T) []string {
	t.Helper()
	guides, err := filepath.Glob(filepath.Join(repository, "docs", "guides", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if readme := filepath.Join(repository, "README.md"); exists(readme) {
		guides = append(guides, readme)
	}
	if len(guides) == 0 {
		t.Skip("there is no README.md and no guide yet")
	}
	return guides
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func parseFile(t *testing.T, file string) *Page {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}

// Go in the pages is the Go of the examples, which is compiled. With -update it is copied; the test then fails once, so
// that nobody commits a page unseen.
func TestGoBlocksAreCopies(t *testing.T) {
	t.Parallel()
	for _, file := range pages(t) {
		t.Run("[operations/GS2] "+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			for i := range parseFile(t, file).Blocks {
				p := parseFile(t, file) // again: a copy before may have moved the lines
				b := p.Blocks[i]
				if b.Do != DoCopy {
					continue
				}
				name, region, _ := strings.Cut(b.Arg, "#")
				source, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
				if err != nil {
					t.Errorf("line %d: %v", b.Line, err)
					continue
				}
				want, err := Region(string(source), region)
				if err != nil {
					t.Errorf("line %d: %s: %v", b.Line, name, err)
					continue
				}
				if want == b.Text {
					continue
				}
				t.Errorf("line %d is not %s; run make verify, and look at the change", b.Line, b.Arg)
				if *update {
					if err := os.WriteFile(file, []byte(p.Replace(b, want)), 0o644); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// binDir is the folder of the built command; TestMain makes and removes it.
var binDir string

// program builds the idempo command, once.
var program = sync.OnceValue(func() error {
	cmd := exec.Command("go", "build", "-o", binDir, "./cmd/idempo")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build idempo: %w: %s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "idempo-docs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestShellBlocksRun(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pages(t) {
		t.Run("[operations/GS2] "+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			p := parseFile(t, file)
			if err := program(); err != nil {
				t.Fatal(err)
			}
			home := t.TempDir()
			env := append(os.Environ(), "PATH="+binDir+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=1")
			r, err := NewRunner(root, home, env, p)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Stop()
			for _, b := range p.Blocks {
				if b.Do == DoShow {
					t.Run(fmt.Sprintf("line %d", b.Line), func(t *testing.T) { t.Skip("only shown: " + b.Arg) })
					continue
				}
				if err := r.Run(t.Context(), b); err != nil {
					t.Fatalf("line %d: %v", b.Line, err)
				}
			}
		})
	}
}
