package idemhttp

import (
	"net/url"
	"slices"
	"strings"
)

// pair is one name and value of a query or an urlencoded form, decoded.
type pair struct{ name, value string }

// readPairs decodes a query or form and sorts it by name, keeping the order within a name. It reports false for what
// url.ParseQuery refuses: a bad escape, a semicolon.
func readPairs(text string) ([]pair, bool) {
	if text == "" {
		return nil, true
	}
	pairs := make([]pair, 0, 1+strings.Count(text, "&"))
	for text != "" {
		var one string
		one, text, _ = strings.Cut(text, "&")
		if strings.IndexByte(one, ';') >= 0 {
			return nil, false
		}
		if one == "" {
			continue
		}
		name, value, _ := strings.Cut(one, "=")
		var err error
		if name, err = url.QueryUnescape(name); err != nil {
			return nil, false
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, false
		}
		pairs = append(pairs, pair{name: name, value: value})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	return pairs, true
}

// named are the pairs of one name. pairs must be sorted.
func named(pairs []pair, name string) []pair {
	i, _ := slices.BinarySearchFunc(pairs, name, func(p pair, n string) int { return strings.Compare(p.name, n) })
	j := i
	for j < len(pairs) && pairs[j].name == name {
		j++
	}
	return pairs[i:j]
}
