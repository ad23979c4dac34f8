package webhook

import (
	"strings"
)

// KeysOf are the ids of messages that an event of this provider may have whose delivery id reads text: a provider may write
// a number as such or as text, and joined parts can be split in more than one way.
func (p Profile) KeysOf(text string) (keys []string) {
	if sum, ok := strings.CutPrefix(text, "sha256:"); ok {
		keys = append(keys, "bytes "+sum)
	}
	shapes := []Shape{p.Shape}
	for _, i := range p.Items {
		shapes = append(shapes, i.Shape)
	}
	for _, s := range shapes {
		for which, id := range s.IDs {
			for _, parts := range splits(text, len(id.Parts)) {
				for _, values := range typed(id.Parts, parts) {
					keys = append(keys, tuple(which, values))
				}
			}
		}
	}
	return keys
}

// splits cuts text at plus signs into n parts, in every way.
func splits(text string, n int) (ways [][]string) {
	if n == 1 {
		return [][]string{{text}}
	}
	for i := range len(text) {
		if text[i] != '+' {
			continue
		}
		for _, rest := range splits(text[i+1:], n-1) {
			ways = append(ways, append([]string{text[:i]}, rest...))
		}
	}
	return ways
}

// typed gives parts the types that they may have had.
func typed(places []Part, parts []string) (ways [][]Value) {
	ways = [][]Value{nil}
	for i, text := range parts {
		values := []Value{{text, true}}
		if _, number := digits(strings.TrimPrefix(text, "-")); number && places[i].JSON != "" {
			values = append(values, Value{text, false})
		}
		var next [][]Value
		for _, way := range ways {
			for _, v := range values {
				next = append(next, append(way[:len(way):len(way)], v))
			}
		}
		ways = next
	}
	return ways
}
