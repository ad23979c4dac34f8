package docfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/idempo/idempo/contract"
)

const (
	// MaxSize is the largest file that is read, in bytes: it bounds the memory of its tree.
	MaxSize = 32 << 20

	maxDepth   = 200
	maxAliased = 100_000 // nodes that aliases stand for
)

// Files reads documents and what they refer to below the folder of the process, and nothing of the network.
func Files(dir string) contract.Files {
	return contract.Files{Parse: Parse, Open: func(file string) ([]byte, error) { return Read(dir, file) }}
}

// Read reads a file of at most MaxSize. Relative names count from dir.
func Read(dir, file string) ([]byte, error) {
	if dir != "" && !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(b) > MaxSize {
		err = fmt.Errorf("over %d MiB", MaxSize>>20)
	}
	return b, reason(err)
}

// reason is an error without the path that stands before it already.
func reason(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// Parse makes a tree of a document: JSON where it begins with a brace, else YAML. An error is a *contract.Problem with its line.
func Parse(file string, content []byte) (*contract.Node, error) {
	if body := bytes.TrimLeft(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), " \t\r\n"); strings.HasSuffix(file, ".json") || bytes.HasPrefix(body, []byte("{")) {
		return contract.ParseJSON(file, content)
	}
	d := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	if err := d.Decode(&doc); err != nil {
		return nil, yamlProblem(file, err)
	}
	var more yaml.Node
	if err := d.Decode(&more); err == nil {
		return nil, &contract.Problem{File: file, Line: more.Line, Col: more.Column, Message: "a second document in one file"}
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlProblem(file, err)
	}
	c := &converter{file: file, seen: map[*yaml.Node]*contract.Node{}}
	return c.node(doc.Content[0], 0)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func yamlProblem(file string, err error) error {
	if errors.Is(err, io.EOF) {
		return &contract.Problem{File: file, Line: 1, Col: 1, Message: "the file is empty"}
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	line := 1
	if m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = max(1, n)
		}
		return &contract.Problem{File: file, Line: line, Col: 1, Message: "not YAML: " + err.Error()[len(m[0]):]}
	}
	return &contract.Problem{File: file, Line: line, Col: 1, Message: "not YAML: " + err.Error()}
}

// converter turns YAML nodes into those of contract. An aliased node is one node, wherever it is used.
type converter struct {
	file    string
	seen    map[*yaml.Node]*contract.Node
	aliased int
}

func (c *converter) problem(n *yaml.Node, format string, args ...any) *contract.Problem {
	return &contract.Problem{File: c.file, Line: n.Line, Col: n.Column, Message: fmt.Sprintf(format, args...)}
}

func (c *converter) node(n *yaml.Node, depth int) (*contract.Node, error) {
	if depth > maxDepth {
		return nil, c.problem(n, "nested too deep: at most %d levels", maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		if c.aliased++; c.aliased > maxAliased {
			return nil, c.problem(n, "over %d aliases", maxAliased)
		}
		if done, ok := c.seen[n.Alias]; ok {
			if done == nil {
				return nil, c.problem(n, "an alias inside of what it stands for")
			}
			return done, nil
		}
		return c.node(n.Alias, depth+1)
	}
	c.seen[n] = nil // not done
	out := &contract.Node{File: c.file, Line: n.Line, Col: n.Column, Flow: n.Style&yaml.FlowStyle != 0}
	var err error
	switch n.Kind {
	case yaml.SequenceNode:
		out.Kind = contract.List
		for _, item := range n.Content {
			v, err := c.node(item, depth+1)
			if err != nil {
				return nil, err
			}
			out.Items = append(out.Items, v)
		}
	case yaml.MappingNode:
		out.Kind = contract.Map
		err = c.members(out, n, depth)
	default:
		err = c.scalar(out, n)
	}
	c.seen[n] = out
	return out, err
}

func (c *converter) members(out *contract.Node, n *yaml.Node, depth int) error {
	lines := map[string]int{}
	var merged []*contract.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			return c.problem(name, "a name is wanted")
		}
		v, err := c.node(value, depth+1)
		if err != nil {
			return err
		}
		if name.ShortTag() == "!!merge" {
			merged = append(merged, v)
			continue
		}
		if line, ok := lines[name.Value]; ok {
			return c.problem(name, "the name %q is there twice: lines %d and %d", name.Value, line, name.Line)
		}
		lines[name.Value] = name.Line
		out.Members = append(out.Members, contract.Member{Name: name.Value, Line: name.Line, Col: name.Column, Value: v})
	}
	for _, m := range merged {
		for _, from := range append([]*contract.Node{m}, m.Items...) {
			for _, o := range from.Members {
				if _, ok := lines[o.Name]; !ok {
					lines[o.Name] = o.Line
					out.Members = append(out.Members, o)
				}
			}
		}
	}
	return nil
}

func (c *converter) scalar(out *contract.Node, n *yaml.Node) error {
	out.Kind, out.Value = contract.Text, n.Value
	switch n.ShortTag() {
	case "!!null":
		out.Kind, out.Value = contract.Null, ""
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return c.problem(n, "not YAML: %v", err)
		}
		out.Kind, out.Value = contract.Bool, strconv.FormatBool(b)
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			out.Kind = contract.Number
		}
	}
	return nil
}
