package archtest

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed policy.txt
var files embed.FS

// Table returns the import policy of this repository as it is written in policy.txt.
func Table() string {
	b, err := files.ReadFile("policy.txt")
	if err != nil {
		return "" // cannot happen: the file is embedded
	}
	return string(b)
}

// Layer is where a package of the root module stands.
type Layer string

// The three layers, from the inside out. A package may only be reached from a layer further out.
const (
	LayerDomain  Layer = "domain"  // the rules of the product; standard library without the outside world
	LayerAdapter Layer = "adapter" // one technology each
	LayerTestkit Layer = "testkit" // for _test.go files only
)

// denies returns the standard packages that a package of the layer must not reach, not even through others.
func (l Layer) denies() []string {
	switch l {
	case LayerDomain:
		return []string{"net", "net/http", "database/sql", "os/exec", "testing", "flag", "expvar", "html/template"}
	case LayerAdapter:
		return []string{"testing", "flag", "net/http/pprof"}
	default:
		return nil
	}
}

// Row is the right of one package. Names are relative to the root module; "." is the root package.
type Row struct {
	Package string
	Layer   Layer
	May     []string // packages of the root module that it may import directly
}

// Policy is the parsed table. The zero value allows nothing.
type Policy struct {
	rows  map[string]Row
	later map[string]string // commented rows: what to write once the package exists
}

// ParsePolicy reads "layer packages : may import" lines. Lines that begin with # are comments; one that begins with
// "#later" holds a row whose package does not exist yet, so that the finding can quote it. It returns an error for an
// unknown layer, a missing colon, and a package that stands in two rows.
func ParsePolicy(text string) (Policy, error) {
	p := Policy{rows: map[string]Row{}, later: map[string]string{}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		planned, isPlanned := strings.CutPrefix(line, "#later ")
		if isPlanned {
			line = strings.TrimSpace(planned)
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, right, ok := strings.Cut(line, ":")
		words := strings.Fields(left)
		if !ok || len(words) < 2 {
			return Policy{}, fmt.Errorf("policy line %d: want \"layer packages : may import\", have %q", n, line)
		}
		layer := Layer(words[0])
		if !slices.Contains([]Layer{LayerDomain, LayerAdapter, LayerTestkit}, layer) {
			return Policy{}, fmt.Errorf("policy line %d: no layer %q", n, layer)
		}
		for _, name := range words[1:] {
			if isPlanned {
				p.later[name] = fmt.Sprintf("%s %s : %s", layer, name, strings.Join(strings.Fields(right), " "))
				continue
			}
			if _, twice := p.rows[name]; twice {
				return Policy{}, fmt.Errorf("policy line %d: package %s has a row already", n, name)
			}
			p.rows[name] = Row{Package: name, Layer: layer, May: strings.Fields(right)}
		}
	}
	return p, nil
}

// IsKit reports whether the package, named relative to the root module, is a test kit.
func (p Policy) IsKit(name string) bool { return p.rows[name].Layer == LayerTestkit }
