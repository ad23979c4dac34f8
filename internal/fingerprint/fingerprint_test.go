package fingerprint_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/idempo/idempo/internal/fingerprint"
)

func TestDerive(t *testing.T) {
	t.Parallel()
	ok := func(want string, fields ...string) {
		t.Helper()
		if got := fingerprint.Derive(fields...); got != want {
			t.Errorf("Derive(%q) = %s, want %s", fields, got, want)
		}
	}
	// The vectors of pages stores (E19) and saga (rule 5).
	ok("6be8f39f-c03c-4adc-b47a-d559a3522431", "acct_7", "create-order", "o-123", "", "forward", "1", "")
	ok("8ad24c59-3dc8-4092-8221-2d14aed4762e", "acct_7", "place-order", "order-123", "charge", "forward", "1", "")
}

func TestSum(t *testing.T) {
	t.Parallel()
	s := fingerprint.Sum("idempo-sql-1", "acct_7", "create-order", "o-123")
	if got := hex.EncodeToString(s[:8]); got != "26e2751550aa1938" {
		t.Errorf("[stores/E23] sql key starts %s", got)
	}
	if fingerprint.Sum("ab", "c") == fingerprint.Sum("a", "bc") {
		t.Error("a shifted boundary gives the same digest")
	}
}

func TestSubkey(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte("s1"), 16)
	seen := map[string]bool{}
	for _, f := range [][2]string{{"key", "a"}, {"key", "b"}, {"fingerprint", "a"}, {"keya", ""}, {"", "keya"}} {
		k, err := fingerprint.Subkey(secret, f[0], f[1])
		if err != nil || len(k) != 32 || seen[string(k)] {
			t.Errorf("Subkey(%q) = %x, %v", f, k, err)
		}
		seen[string(k)] = true
	}
}
