package cli

import (
	"strings"
	"testing"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP47] an export beside the keys: text, JSON, CSV, exit 1 on differences, nothing written", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		before := s.dump()
		s.file("bank.csv", "when,key_ref,amount\n2026-01-01,"+ref("done")+",12\n2026-01-01,"+ref("declined")+",5\n2026-01-02,k_nobody,1\n")
		run := func(args ...string) result {
			return s.run(append([]string{"reconcile", "pay", "--store", "idempo.db", "--file", "bank.csv"}, args...)...)
		}
		r := run()
		if r.code != 1 || r.err != "agree 1, missing outside 1, extra outside 2, differs 0, unknown 0\n" || strings.Count(r.out, "extra_outside") != 2 || !strings.Contains(r.out, "k_nobody") {
			t.Errorf("%+v", r)
		}
		for line := range strings.SplitSeq(r.out, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("over 80 columns: %s", line)
			}
		}
		if r = run("--format", "json", "--all"); strings.Count(r.out, "\n") != 4 || !strings.Contains(r.out, `{"schema":1,"kind":"agree","key_ref":"`+ref("done")+`"`) {
			t.Errorf("%+v", r)
		}
		if r = run("--format", "csv"); !strings.HasPrefix(r.out, "kind,key_ref,state,outside,resource,why\n") || strings.Count(r.out, "\n") != 4 {
			t.Errorf("%+v", r)
		}
		s.file("bank.csv", "resource\n\"charge:ch_\x1b[2J91\"\n=cmd()\n")
		if r = run("--format", "csv"); r.code != 1 || !strings.Contains(r.out, ",'=cmd(),") {
			t.Errorf("a cell that a spreadsheet runs: %+v", r)
		}
		s.file("bank.csv", "key_ref\n"+ref("lost")+"\n")
		r = s.run("reconcile", "ship", "--store", "idempo.db", "--file", "bank.csv")
		if r.code != 1 || !strings.Contains(r.out, "idempo keys resolve "+ref("lost")+" --completed") {
			t.Errorf("%+v", r)
		}
		s.file("bank.csv", "key_ref\n"+ref("done")+"\n"+ref("old")+"\n")
		if r = run(); r.code != 0 || r.out != "" {
			t.Errorf("all agree: %+v", r)
		}
		if after := s.dump(); string(after) != string(before) {
			t.Error("it wrote")
		}
	})
	t.Run("[operations/OP2] what cannot be compared", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.file("odd.csv", "amount\n1\n")
		for want, args := range map[string][]string{
			"say what to compare with": {"pay"},
			"--file: ":                 {"pay", "--file", "none.csv"},
			"--file: the heading has neither key_ref nor": {"pay", "--file", "odd.csv"},
			"--since: ":               {"pay", "--file", "odd.csv", "--since", "x"},
			"--format: unknown value": {"pay", "--file", "odd.csv", "--format", "xml"},
		} {
			if r := s.run(append([]string{"reconcile", "--store", "idempo.db"}, args...)...); r.code != 125 || !strings.HasPrefix(r.err, "idempo: "+want) {
				t.Errorf("%v: %+v", args, r)
			}
		}
	})
}
