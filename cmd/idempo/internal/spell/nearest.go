package spell

import "strings"

// Nearest returns the word of words that is closest to got, or "" where none is close enough to be what was meant.
//
// Letter case, and the difference between '-', '_' and a space, count for nothing. A word counts as close if at most a third
// of its letters (and at least one) differ by insertion, removal, replacement or swap of neighbours, or if got is a beginning
// of at least two letters of it. Of equally close words the first wins.
func Nearest(got string, words []string) string {
	g := fold(got)
	best, bestDistance := "", -1
	for _, w := range words {
		f := fold(w)
		d := distance(g, f)
		limit := max(1, max(len(g), len(f))/3)
		if len(g) >= 2 && strings.HasPrefix(f, g) {
			d = min(d, 1)
		}
		if d <= limit && (bestDistance < 0 || d < bestDistance) {
			best, bestDistance = w, d
		}
	}
	return best
}

func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "-", " ", "-").Replace(s))
}

// distance is the optimal string alignment distance in bytes. Both words are names, so bytes are letters.
func distance(a, b string) int {
	const limit = 64 // names are short; anything longer is never close to one
	if len(a) > limit || len(b) > limit {
		return limit + max(len(a), len(b))
	}
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}
