package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// CheckSecrets finds code that is careless with secrets. Its findings carry these rules:
//
//	compare  a token, digest, signature or password is compared in a time that depends on its bytes
//	unsafe   unsafe or cgo, tests included
//	rand     math/rand in a file that also uses crypto: a secret could be drawn from it
//	primitive  a home-made hash or cipher
//
// It goes by names, so it misses a secret called x. A comparison of something public says so at its end, with the reason:
// // not secret: a checksum of a public file
func (s *Source) CheckSecrets() []Finding {
	var fs findings
	for _, f := range s.Files {
		imports := f.imports()
		if slices.Contains(imports, "unsafe") || slices.Contains(imports, "C") {
			fs.add("unsafe", f.Path, "imports unsafe or C")
		}
		if f.Test || f.Kit {
			continue
		}
		random := slices.Contains(imports, "math/rand") || slices.Contains(imports, "math/rand/v2")
		if random && slices.ContainsFunc(imports, func(i string) bool { return strings.HasPrefix(i, "crypto/") }) {
			fs.add("rand", f.Path, "math/rand beside crypto: a secret could be drawn from it; move it to a file that holds none")
		}
		s.checkCompare(f, &fs)
		s.checkPrimitive(f, &fs)
	}
	return fs.sorted()
}

// checkCompare looks for == and the comparing functions on values that are named like secrets.
func (s *Source) checkCompare(f *File, fs *findings) {
	public := s.publicLines(f)
	report := func(n ast.Node, name, how string) {
		if !public[s.fset.Position(n.Pos()).Line] {
			fs.add("compare", s.at(n), "%s is compared with %s: use hmac.Equal or subtle.ConstantTimeCompare, "+
				"or end the line with \"// not secret: why\"", name, how)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op != token.EQL && n.Op != token.NEQ || isPlain(n.X) || isPlain(n.Y) {
				return true
			}
			x, y := lastName(n.X), lastName(n.Y)
			switch {
			case strings.HasPrefix(x, y) && len(x) > len(y) && y != "", strings.HasPrefix(y, x) && len(y) > len(x) && x != "":
				// A word and its constant: Fingerprint == FingerprintNone.
			case isSecret(x):
				report(n, x, n.Op.String())
			case isSecret(y):
				report(n, y, n.Op.String())
			}
		case *ast.CallExpr:
			how := exprText(n.Fun)
			if !slices.Contains([]string{"bytes.Equal", "bytes.Compare", "bytes.EqualFold", "slices.Equal", "slices.Compare",
				"strings.EqualFold", "strings.Compare", "cmp.Compare", "reflect.DeepEqual"}, how) {
				return true
			}
			for _, arg := range n.Args {
				if name := lastName(arg); isSecret(name) {
					report(n, name, how)
					break
				}
			}
		}
		return true
	})
}

// publicLines are the lines of a file that end in a "not secret" comment with a reason.
func (s *Source) publicLines(f *File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if _, why, ok := strings.Cut(c.Text, "not secret:"); ok && strings.TrimSpace(why) != "" {
				lines[s.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

// isPlain says whether a comparison with e tells nothing about bytes: nil, a literal, a zero value, a length, a constant.
func isPlain(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return isPlain(e.X)
	case *ast.BasicLit:
		return true
	case *ast.CompositeLit:
		return len(e.Elts) == 0
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "true" || e.Name == "false"
	case *ast.CallExpr:
		return exprText(e.Fun) == "len"
	case *ast.SelectorExpr:
		id, ok := e.X.(*ast.Ident)
		return ok && id.Name == "token" && e.Sel.IsExported() // a word of go/token
	default:
		return false
	}
}

// lastName is the name that says what an expression is: of r.claim.Token, t.Token[:], string(token), Token() it is Token.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.ParenExpr:
		return lastName(e.X)
	case *ast.StarExpr:
		return lastName(e.X)
	case *ast.UnaryExpr:
		return lastName(e.X)
	case *ast.IndexExpr:
		return lastName(e.X)
	case *ast.IndexListExpr:
		return lastName(e.X)
	case *ast.SliceExpr:
		return lastName(e.X)
	case *ast.CallExpr:
		if conv := lastName(e.Fun); conv != "string" && conv != "" {
			return conv
		}
		if len(e.Args) == 1 {
			return lastName(e.Args[0])
		}
	}
	return ""
}

// isSecret goes by the last word of a name in camel case: attemptToken is a secret, tokenCount is not.
func isSecret(name string) bool {
	word := strings.ToLower(lastWord(name))
	return slices.Contains([]string{"token", "tokens", "digest", "digests", "signature", "signatures", "sig", "mac", "hmac",
		"password", "secret", "fingerprint", "credential", "bearer"}, word)
}

func lastWord(name string) string {
	rs := []rune(name)
	end := len(rs)
	for end > 0 && unicode.IsDigit(rs[end-1]) {
		end--
	}
	start := end
	for start > 0 {
		start--
		if unicode.IsUpper(rs[start]) && (start == 0 || !unicode.IsUpper(rs[start-1])) {
			break
		}
	}
	return string(rs[start:end])
}

// checkPrimitive finds types that look like a hash or a cipher. The standard library has all that we need.
func (s *Source) checkPrimitive(f *File, fs *findings) {
	f.funcs(func(fn *ast.FuncDecl) {
		if fn.Recv != nil && fn.Name.Name == "BlockSize" {
			fs.add("primitive", s.at(fn), "%s has a method BlockSize: a home-made hash or cipher", receiver(fn))
		}
	})
}
