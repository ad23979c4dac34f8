package archtest

import (
	"go/ast"
	"go/parser"
	"strings"
	"testing"
)

func TestPolicyLines(t *testing.T) {
	t.Parallel()
	bad := func(text, why string) {
		t.Helper()
		if _, err := ParsePolicy(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("ParsePolicy(%q): %v, want %q", text, err, why)
		}
	}
	bad("domain .", "want")
	bad("domain :", "want")
	bad("kitchen . :", "no layer")
	bad("domain a :\nadapter b a :", "line 2")

	p, err := ParsePolicy("# a comment\n\ndomain . : x/y z\n#later testkit kit : .\ntestkit k1 k2 :\n")
	if err != nil {
		t.Fatal(err)
	}
	if r := p.rows["."]; r.Layer != LayerDomain || strings.Join(r.May, " ") != "x/y z" {
		t.Errorf("row of the root: %+v", r)
	}
	if !p.IsKit("k2") || p.IsKit(".") || p.IsKit("kit") || p.IsKit("absent") {
		t.Error("kits are told apart wrongly")
	}
	if p.later["kit"] != "testkit kit : ." {
		t.Errorf("planned row: %q", p.later["kit"])
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	if fs := (Measures{CodeLines: 100, TestLines: 109}).Check(); len(fs) != 1 || fs[0].Rule != "share" {
		t.Errorf("1.09 passes: %v", fs)
	}
	if fs := (Measures{CodeLines: 100, TestLines: 110}).Check(); len(fs) != 0 {
		t.Errorf("1.10 fails: %v", fs)
	}
	if s := (Measures{}).Share(); s != 0 {
		t.Errorf("share of nothing: %v", s)
	}
	if q := quantile([]int{9, 1, 5}, 50); q != 5 {
		t.Errorf("median %d", q)
	}
	if q := quantile([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 90); q != 9 {
		t.Errorf("p90 %d", q)
	}
	if q := quantile(nil, 50); q != 0 {
		t.Errorf("median of nothing %d", q)
	}
}

func TestCodeLines(t *testing.T) {
	t.Parallel()
	ok := func(text string, want int) {
		t.Helper()
		if got := codeLines([]byte(text)); got != want {
			t.Errorf("%q has %d lines of code, want %d", text, got, want)
		}
	}
	ok("", 0)
	ok("// only\n\n/* a\ncomment */\n", 0)
	ok("package x\n", 1)
	ok("package x\n\nvar a, b = 1, 2 // why\n", 2)
	ok("package x\n\nvar a = `1\n2\n3` + `4\n5`\n", 5)
	ok("package x\n\nfunc f() {\n}\n", 3)
	ok("package x; var a = 1;\n", 1)
}

func TestSecretNames(t *testing.T) {
	t.Parallel()
	yes := func(name string) {
		t.Helper()
		if !isSecret(name) {
			t.Errorf("%s is no secret", name)
		}
	}
	no := func(name string) {
		t.Helper()
		if isSecret(name) {
			t.Errorf("%s is a secret", name)
		}
	}
	yes("token")
	yes("Token")
	yes("attemptToken")
	yes("Token2")
	yes("keyDigest")
	yes("HMAC")
	yes("wantMAC")
	yes("Fingerprint")
	no("tokenCount")
	no("digestAlgorithm")
	no("tok")
	no("sigma")
	no("")
	no("state")
	no("macro")
}

func TestLastName(t *testing.T) {
	t.Parallel()
	ok := func(expr, want string) {
		t.Helper()
		e, err := parser.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := lastName(e); got != want {
			t.Errorf("lastName(%s) = %q, want %q", expr, got, want)
		}
	}
	ok("a.b.Token", "Token")
	ok("t.Token[:]", "Token")
	ok("t.Digests[0]", "Digests")
	ok("string(token)", "token")
	ok("[]byte(s.secret)", "secret")
	ok("(*p).Digest", "Digest")
	ok("*digest", "digest")
	ok("r.Token()", "Token")
	ok("1", "")
}

func TestProse(t *testing.T) {
	t.Parallel()
	got := prose("one\n```go\nhidden\n```\n| head | x |\n|---|---|\n| row | y |\n\n| again |\n")
	var texts []string
	for _, l := range got {
		if strings.Contains(l.text, "hidden") {
			t.Error("a code block was read")
		}
		if l.row {
			texts = append(texts, strings.TrimSpace(l.text))
		}
	}
	if strings.Join(texts, "/") != "| row | y |" {
		t.Errorf("rows: %q", texts)
	}
	if got[1].number != 5 {
		t.Errorf("the head stands on line %d", got[1].number)
	}
}

func TestExprText(t *testing.T) {
	t.Parallel()
	e := &ast.StarExpr{X: &ast.SelectorExpr{X: ast.NewIdent("regexp"), Sel: ast.NewIdent("Regexp")}}
	if got := exprText(e); got != "regexp.Regexp" {
		t.Error(got)
	}
}
