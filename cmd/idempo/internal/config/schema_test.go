package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite golden files")

// everyPath is the path of every key of the schema.
func everyPath(t *testing.T) (paths []string) {
	t.Helper()
	schema().walk("", func(p string, f *field) { paths = append(paths, p) })
	if len(paths) < 150 {
		t.Fatalf("only %d keys", len(paths))
	}
	return paths
}

func TestSchemaIsSound(t *testing.T) {
	t.Parallel()
	schema().walk("", func(p string, f *field) {
		if f.doc == "" && !strings.Contains(p, "horizons") {
			t.Errorf("%s: no comment", p)
		}
		if f.later != "" {
			return
		}
		if f.def != "" && f.def != `""` {
			if _, err := f.read(f.def); err != nil {
				t.Errorf("%s: default %s: %v", p, f.def, err)
			}
			if f.kind == word && !slices.Contains(f.words, f.def) {
				t.Errorf("%s: default %s is no word of it", p, f.def)
			}
		}
		for _, limit := range []string{f.min, f.max} {
			if limit == "" {
				continue
			}
			if _, err := (&field{kind: f.kind}).read(limit); err != nil {
				t.Errorf("%s: limit %s: %v", p, limit, err)
			}
		}
		if (f.kind == list || f.kind == mapping) == (f.item == nil) {
			t.Errorf("%s: item", p)
		}
		if !f.composite() && f.def == "" && f.later == "" && f.sample == "" {
			t.Errorf("%s: neither default nor sample", p)
		}
	})
}

func TestExample(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP36] the example file is what the code makes", func(t *testing.T) {
		t.Parallel()
		const file = "../../../../docs/idempo.example.yaml"
		want := Example()
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Error("docs/idempo.example.yaml differs from the code; go test ./internal/config -run TestExample -update")
		}
	})
	t.Run("[operations/OP36] the example and the JSON Schema hold every key", func(t *testing.T) {
		t.Parallel()
		want := everyPath(t)
		if got := pathsOfExample(Example()); !slices.Equal(got, want) {
			t.Errorf("example: %v", difference(got, want))
		}
		var doc map[string]any
		if err := json.Unmarshal(JSONSchema(), &doc); err != nil {
			t.Fatal(err)
		}
		got := pathsOfSchema(doc, "")
		slices.Sort(got)
		sorted := slices.Sorted(slices.Values(want))
		if !slices.Equal(got, sorted) {
			t.Errorf("JSON Schema: %v", difference(got, sorted))
		}
	})
	t.Run("[operations/OP36] the example is a valid file and changes no default", func(t *testing.T) {
		t.Parallel()
		a, warnings, err := Load(Source{File: "example.yaml", Content: []byte(Example()), DataDir: "/d"})
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		b, _, err := Load(Source{File: "empty.yaml", Content: []byte("version: 1\n"), DataDir: "/d"})
		if err != nil {
			t.Fatal(err)
		}
		show := func(s *Settings) (out []string) {
			for _, set := range s.List() {
				out = append(out, set.Path+" "+set.Value)
			}
			return out
		}
		if d := difference(show(a), show(b)); len(d) > 0 {
			t.Errorf("differs from the defaults: %v", d)
		}
	})
	t.Run("[operations/OP36] no line of the example is longer than 112 columns", func(t *testing.T) {
		t.Parallel()
		for line := range strings.SplitSeq(Example(), "\n") {
			if len([]rune(line)) > 112 {
				t.Error(line)
			}
		}
	})
}

func difference(a, b []string) (out []string) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, "+"+x)
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			out = append(out, "-"+x)
		}
	}
	return out
}

// pathsOfExample reads the keys of the example by indentation, commented or not: a second reading of the file.
func pathsOfExample(text string) (paths []string) {
	key := regexp.MustCompile(`^( *)([a-z0-9_]+|NAME|-):?( |$)`)
	stack := []string{}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimPrefix(line, "# ")
		m := key.FindStringSubmatch(line)
		if m == nil || (!strings.Contains(line, m[2]+":") && m[2] != "-") {
			continue
		}
		depth := len(m[1]) / 2
		stack = append(stack[:depth], m[2])
		if m[2] == "NAME" || m[2] == "-" {
			continue
		}
		p := strings.Join(stack, ".")
		p = strings.ReplaceAll(p, ".NAME.", ".*.")
		paths = append(paths, strings.ReplaceAll(p, ".-.", "[]."))
	}
	return paths
}

func pathsOfSchema(node map[string]any, prefix string) (paths []string) {
	if items, ok := node["items"].(map[string]any); ok {
		return pathsOfSchema(items, prefix+"[]")
	}
	if items, ok := node["additionalProperties"].(map[string]any); ok {
		return pathsOfSchema(items, prefix+".*")
	}
	properties, _ := node["properties"].(map[string]any)
	for name, p := range properties {
		path := join(prefix, name)
		paths = append(paths, path)
		paths = append(paths, pathsOfSchema(p.(map[string]any), path)...)
	}
	return paths
}

// everything sets each key that this version has. Values that exclude each other are set all the same: it is decoded, not checked.
func everything() []byte {
	var b bytes.Buffer
	b.WriteString("version: 1\n")
	var write func(f *field, indent string)
	scalar := func(f *field) string {
		switch {
		case f.kind == word:
			return f.words[0]
		case f.def != "" && f.def != `""`:
			return f.def
		case f.sample != "" && !strings.HasPrefix(f.sample, "{") && !strings.HasPrefix(f.sample, "${"):
			return f.sample
		case f.kind == whole:
			return "300"
		case f.kind == duration:
			return "3h"
		case f.kind == anything:
			return "1"
		}
		if f.name == "mysql" {
			return "mysql://h/d"
		}
		return "postgres://abcdefghijklmnopqrs/x" // 32 bytes: a key as well
	}
	write = func(f *field, indent string) {
		for i := range f.fields {
			c := &f.fields[i]
			switch {
			case c.later != "" || c.name == "version":
			case c.kind == section:
				b.WriteString(indent + c.name + ":\n")
				write(c, indent+"  ")
			case c.kind == list && c.item.kind == section:
				b.WriteString(indent + c.name + ":\n" + indent + "  -\n")
				write(c.item, indent+"    ")
			case c.kind == mapping && c.item.kind == section:
				b.WriteString(indent + c.name + ":\n" + indent + "  pay:\n")
				write(c.item, indent+"    ")
			case c.composite() && c.sample != "":
				b.WriteString(indent + c.name + ": " + c.sample + "\n")
			default:
				b.WriteString(indent + c.name + ": " + scalar(c) + "\n")
			}
		}
	}
	write(schema(), "")
	return b.Bytes()
}

func TestEveryKeyIsDecoded(t *testing.T) {
	t.Parallel()
	root, r, err := read(Source{File: "all.yaml", Content: everything()})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.problems {
		t.Errorf("%s", p)
	}
	settings := decode(root, Source{File: "all.yaml"}, r)
	schema().walk("", func(p string, f *field) {
		shape := p
		if later(p) || f.composite() && f.kind != section {
			return
		}
		if !root.used[shape] {
			t.Errorf("%s is checked and then ignored", p)
		}
	})
	rt := settings.Gateway.Routes[0]
	if rt.Match != "POST /v1/payments" || rt.Probe == nil || rt.Probe.Settle != time.Minute || rt.Outcomes[404] != "release" ||
		rt.Probe.Happened.JSON["/count"] != json.Number("1") || rt.Defaults["/currency"] != "EUR" || rt.Tombstone != 240*time.Hour {
		t.Errorf("%+v", rt)
	}
	if len(settings.Gateway.Upstreams["pay"].URLs) != 1 || settings.Gateway.Limits.Head != 32<<10 || settings.Gateway.Outbound.Ports[1] != 443 {
		t.Errorf("%+v", settings.Gateway)
	}
}

// later says whether a path, or one above it, is of a part that this version does not have.
func later(p string) bool {
	found := false
	schema().walk("", func(q string, f *field) {
		found = found || f.later != "" && (p == q || strings.HasPrefix(p, q+".") || strings.HasPrefix(p, q+"[]"))
	})
	return found
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add(everything())
	for _, s := range []string{"", "version: 1", "a: &a [*a]", "version: 1\ngateway: {routes: [{match: \"POST /{a}\", upstream: x, operation: o}], upstreams: {x: {urls: [\"http://h\"]}}}",
		"version: 1\nlog: {level: \"${env:A}$${\"}", "version: 1\ngateway: {routes: [{outcomes: {404: keep}, defaults: {/a: null}}]}", "? {a: b}\n: c", "version: 1\nstore: &s {sqlite: x}\nlog: *s"} {
		f.Add([]byte(s))
	}
	env := func(name string) (string, bool) { return "outside-canary-" + name, name == "A" }
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _, err := Load(Source{File: "f", Content: text, DataDir: "d", LookupEnv: env})
		if (s == nil) != (err != nil) {
			t.Fatalf("settings %v, error %v", s != nil, err)
		}
		if err != nil {
			ps, ok := AsProblems(err)
			if !ok || len(ps) == 0 {
				t.Fatalf("not problems: %v", err)
			}
			for i, p := range ps {
				if p.Line < 1 || p.Col < 1 || p.Message == "" || strings.Contains(p.Message, "outside-canary") {
					t.Errorf("problem %q", p)
				}
				if i > 0 && ps[i-1].Line > p.Line {
					t.Error("not by line")
				}
			}
			return
		}
		for _, set := range s.List() {
			if strings.Contains(set.Value, "outside-canary") {
				t.Errorf("%s printed", set.Path)
			}
		}
	})
}
