package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestMain lets the test binary be the program that a demo starts its services with.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "demo-service" {
		os.Exit(Run(Process{Args: os.Args[1:], Env: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	os.Exit(m.Run())
}

func TestDemo(t *testing.T) {
	t.Parallel()
	t.Run("[operations/GS7] --once --json: intents, charges, verdicts; the claim holds", func(t *testing.T) {
		t.Parallel()
		r := newShell(t).run("demo", "--once", "--json", "--seed", "7")
		var out struct {
			Schema int
			Seed   uint64
			OK     bool
			Scenes []struct {
				Scene    string
				Intents  int
				Bare     int  `json:"charges_bare"`
				Guarded  int  `json:"charges_guarded"`
				Library  *int `json:"charges_library"`
				Verdicts []string
			}
		}
		if err := json.Unmarshal([]byte(r.out), &out); err != nil || r.code != 0 || r.err != "" || strings.Count(r.out, "\n") != 1 {
			t.Fatalf("%v %+v", err, r)
		}
		if out.Schema != 1 || out.Seed != 7 || !out.OK || len(out.Scenes) != 4 {
			t.Errorf("%+v", out)
		}
		for _, s := range out.Scenes {
			if s.Guarded != s.Intents || s.Scene != "changed" && s.Bare <= s.Intents || len(s.Verdicts) == 0 {
				t.Errorf("%+v", s)
			}
			if (s.Library != nil) != (s.Scene == "crash") || s.Library != nil && *s.Library != s.Intents {
				t.Errorf("%+v", s)
			}
		}
	})
	t.Run("[operations/GS5] two columns in 80 characters, no colour without a terminal", func(t *testing.T) {
		t.Parallel()
		r := newShell(t).run("demo", "--seed", "7") // no terminal: ends by itself
		if r.code != 0 || r.err != "" {
			t.Fatalf("%+v", r)
		}
		golden(t, "demo", r.out)
		for line := range strings.SplitSeq(r.out, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("over 80 columns: %s", line)
			}
		}
		if strings.Contains(r.out, "\x1b") {
			t.Error("colours")
		}
	})
	t.Run("[operations/OP3] colour where it is asked for", func(t *testing.T) {
		t.Parallel()
		if r := newShell(t).run("demo", "--once", "--scene", "lost", "--color", "always"); !strings.Contains(r.out, "\x1b[31mledger: 2 charges") || !strings.Contains(r.out, "\x1b[32mledger: 1 charge,") {
			t.Errorf("%q", r.out)
		}
	})
	t.Run("[operations/OP2] an unknown scene", func(t *testing.T) {
		t.Parallel()
		newShell(t).want(125, "", "idempo: --scene: unknown value \"crahs\"\n  did you mean crash?\n", "demo", "--scene", "lost,crahs")
	})
}
