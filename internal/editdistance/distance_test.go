package editdistance_test

import (
	"strings"
	"testing"

	"github.com/idempo/idempo/internal/editdistance"
)

func TestBetween(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"github", "github", 0}, {"githib", "github", 1}, {"gthub", "github", 1}, {"githubb", "github", 1},
		{"kitten", "sitting", 3}, {"ab", "ba", 2}, {"retention", "retentoin", 2}, {strings.Repeat("x", 65), "x", 65}, {strings.Repeat("x", 64), "x", 63},
	} {
		if got := editdistance.Between(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
