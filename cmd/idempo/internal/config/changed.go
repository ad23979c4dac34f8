package config

import (
	"fmt"
	"slices"
)

// Changed lists the paths whose effective values differ between a and b, sorted; secrets are compared too. A folder or an
// upstream that came from the command line is "the data folder" and "upstream".
func Changed(a, b *Settings) []string {
	x, y := map[string]string{}, map[string]string{}
	a.tree.leaves(x)
	b.tree.leaves(y)
	x["the data folder"], y["the data folder"] = a.DataDir, b.DataDir
	x["upstream"], y["upstream"] = a.Upstream, b.Upstream
	var out []string
	for path, v := range x {
		if w, ok := y[path]; !ok || w != v {
			out = append(out, path)
		}
	}
	for path := range y {
		if _, ok := x[path]; !ok {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// leaves collects what stands at each path that has no members.
func (v *value) leaves(into map[string]string) {
	if len(v.members) == 0 {
		into[v.path] = fmt.Sprintf("%v %q %d %v", v.set && v.field.composite(), v.text, v.num, v.any)
		return
	}
	for _, m := range v.members {
		m.leaves(into)
	}
}
