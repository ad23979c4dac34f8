//go:build unix

package ci_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runProof runs a copy of .ci/proof where go and make print how they were called, and go fails where broken is in that.
func runProof(t *testing.T, broken string, args ...string) (printed string, err error) {
	t.Helper()
	dir := t.TempDir()
	copyFile(t, "../../../.ci/proof", filepath.Join(dir, ".ci", "proof"))
	copyFile(t, "../../../.ci/proof", filepath.Join(dir, ".ci", "crash"))
	if err := os.WriteFile(filepath.Join(dir, ".ci", "crash"), []byte("#!/bin/sh\necho \"crash with $KILLS kills\"\n"), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	tool(t, dir, "go", `echo "go $* with seed ${IDEMPO_TEST_SEED:-none}"
case "$*" in *"$BROKEN"*) exit 1 ;; esac`)
	tool(t, dir, "make", `echo "make $*"`)
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(dir, ".ci", "proof")}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "BROKEN="+broken, "IDEMPO_TEST_SEED=", "SEED=", "ROUNDS=", "KILLS=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestProof(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT48] the seed is printed, repeats the run, and each round has the next one", func(t *testing.T) {
		t.Parallel()
		out, err := runProof(t, "nothing is broken", "-seed", "41", "-rounds", "2", "-kills", "7")
		if err != nil {
			t.Fatal(err, out)
		}
		for _, want := range []string{"make proof SEED=41 ROUNDS=2 KILLS=7", "with seed 41\n", "with seed 42\n", "crash with 7 kills", "mutants", "make -s race",
			"all parts passed with seed 41"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out, "seed 43") {
			t.Error("a third round")
		}
	})
	t.Run("without a seed one is drawn", func(t *testing.T) {
		t.Parallel()
		one, err := runProof(t, "nothing is broken", "-rounds", "1")
		two, _ := runProof(t, "nothing is broken", "-rounds", "1")
		first, _, _ := strings.Cut(one, "\n")
		if err != nil || !strings.HasPrefix(first, "proof: seed ") || strings.HasPrefix(two, first) {
			t.Errorf("%v\n%s\n%s", err, one, two)
		}
	})
	t.Run("what failed is named with the seed, and the rest is still run", func(t *testing.T) {
		t.Parallel()
		out, err := runProof(t, "mutants", "-seed", "5", "-rounds", "1")
		if err == nil || !strings.Contains(out, "FAILED with seed 5: the kit against broken stores, and every mutant") || !strings.Contains(out, "make -s race") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	for _, args := range [][]string{{"-seed", "x"}, {"-rounds", "0"}, {"-fast", "1"}} {
		t.Run("refused: "+strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			if out, err := runProof(t, "nothing", args...); err == nil || strings.Contains(out, "go run") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
