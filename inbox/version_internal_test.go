package inbox

import (
	"math/big"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	ok := func(in string, want version) {
		t.Helper()
		if v, good := parseVersion(in, true); !good || v != want {
			t.Errorf("%q: %q, %v; want %q", in, v, good, want)
		}
	}
	bad := func(in string, instants bool) {
		t.Helper()
		if v, good := parseVersion(in, instants); good {
			t.Errorf("%q was read as %q", in, v)
		}
	}
	ok("0", "0")
	ok("-0", "0")
	ok("007", "7")
	ok("-0010", "-10")
	ok(strings.Repeat("9", 5000), version(strings.Repeat("9", 5000)))
	ok("2026-03-01T10:00:00+02:00", "2026-03-01T08:00:00Z")
	ok("2026-03-01T10:00:00.5000Z", "2026-03-01T10:00:00.5Z")
	ok("2026-03-01T10:00:00.12345678901234567890Z", "2026-03-01T10:00:00.1234567890123456789Z")
	for _, in := range []string{"", "-", "+1", "1.0", "1e3", "0x10", " 1", "1 ", "١", "2026-03-01", "2026-03-01T10:00:00", "2026-03-01T10:00:00.Z", "--1"} {
		bad(in, true)
	}
	bad("2026-03-01T10:00:00Z", false)

	order := []string{"-100000000000000000000", "-10", "-9", "-1", "0", "1", "9", "10", "9007199254740992", "9007199254740993", "100000000000000000000"}
	moments := []string{"2025-12-31T23:59:60Z"[:17] + "59Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.11Z", "2026-01-01T00:00:00.2Z", "2026-01-01T00:00:01Z"}
	for _, list := range [][]string{order, moments} {
		for i, a := range list {
			for j, b := range list {
				x, _ := parseVersion(a, true)
				y, _ := parseVersion(b, true)
				if c, good := x.compare(y); !good || c != sign(i-j) {
					t.Errorf("%s against %s: %d, %v", a, b, c, good)
				}
			}
		}
	}
	if _, good := version("1").compare("2026-01-01T00:00:00Z"); good {
		t.Error("an integer compared with an instant")
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

func TestVersionSteps(t *testing.T) {
	t.Parallel()
	if v := version("").next(); v != "1" {
		t.Errorf("a new lane expects %s", v)
	}
	for _, in := range []string{"0", "1", "9", "10", "99", "100", "1000000", "-1", "-2", "-9", "-10", "-11", "-100", strings.Repeat("9", 40), "1" + strings.Repeat("0", 40)} {
		n, _ := new(big.Int).SetString(in, 10)
		v := version(in)
		if got, want := string(v.next()), new(big.Int).Add(n, big.NewInt(1)).String(); got != want {
			t.Errorf("after %s: %s, want %s", in, got, want)
		}
		if got, want := string(v.before()), new(big.Int).Sub(n, big.NewInt(1)).String(); got != want {
			t.Errorf("before %s: %s, want %s", in, got, want)
		}
	}
}

func FuzzVersion(f *testing.F) {
	f.Add("007", "-1")
	f.Add("2026-03-01T10:00:00.5Z", "2026-03-01T10:00:00.50001+02:00")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okA := parseVersion(a, true)
		y, okB := parseVersion(b, true)
		if !okA || !okB {
			return
		}
		if again, ok := parseVersion(string(x), true); !ok || again != x {
			t.Errorf("%q is %q, which is %q", a, x, again)
		}
		c, ok := x.compare(y)
		d, back := y.compare(x)
		if ok != back || c != -d || ok && (c == 0) != (x == y) {
			t.Errorf("%q against %q: %d %v, back %d %v", x, y, c, ok, d, back)
		}
		if !x.instant() && !y.instant() {
			n, _ := new(big.Int).SetString(string(x), 10)
			m, _ := new(big.Int).SetString(string(y), 10)
			if n.Cmp(m) != c {
				t.Errorf("%q against %q: %d", x, y, c)
			}
		}
	})
}
