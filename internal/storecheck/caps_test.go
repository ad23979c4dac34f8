package storecheck

import (
	"cmp"
	"os"
	"strconv"
	"testing"

	"github.com/idempo/idempo/storetest"
)

// kitCaps is what the stores here can do. The random calls repeat one seed, so that the gate gives one answer for one commit:
// IDEMPO_TEST_SEED picks another, 0 draws one and prints it; IDEMPO_TEST_STEPS plays more of them.
func kitCaps(t *testing.T) storetest.Caps {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("IDEMPO_TEST_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatalf("IDEMPO_TEST_SEED: %v", err)
	}
	steps, err := strconv.Atoi(cmp.Or(os.Getenv("IDEMPO_TEST_STEPS"), "0"))
	if err != nil {
		t.Fatalf("IDEMPO_TEST_STEPS: %v", err)
	}
	return storetest.Caps{Tx: true, Sweep: true, Take: true, Seed: seed, Steps: steps}
}
