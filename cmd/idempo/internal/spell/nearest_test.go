package spell_test

import (
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/spell"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"gateway", "retention", "trusted_proxies", "on_crash", "lease", "release"}
	for got, want := range map[string]string{
		"gatway":          "gateway",
		"gatewya":         "gateway",
		"Gateway":         "gateway",
		"trusted-proxies": "trusted_proxies",
		"onCrash":         "on_crash",
		"retent":          "retention",
		"leese":           "lease",
		"":                "",
		"x":               "",
		"sandwich":        "",
	} {
		if n := spell.Nearest(got, words); n != want {
			t.Errorf("Nearest(%q) = %q, want %q", got, n, want)
		}
	}
	if n := spell.Nearest(strings.Repeat("gateway", 1000), words); n != "" {
		t.Errorf("a very long word is near %q", n)
	}
	if n := spell.Nearest("gateway", nil); n != "" {
		t.Errorf("no words, and yet %q", n)
	}
}
