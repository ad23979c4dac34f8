package idemhttp

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// codeOf is the problem code of a refusal, or "" for nil.
func codeOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		t.Fatalf("no refusal: %v", err)
	}
	return r.code
}

func TestKeySyntax(t *testing.T) {
	t.Parallel()
	ok := func(t *testing.T, value, want string) {
		t.Helper()
		if got, err := ParseKey(value); err != nil || got != want {
			t.Errorf("ParseKey(%q) = %q, %v; want %q", value, got, err, want)
		}
	}
	bad := func(t *testing.T, code string, values ...string) {
		t.Helper()
		for _, v := range values {
			got, err := ParseKey(v)
			if c := codeOf(t, err); c != code || got != "" {
				t.Errorf("ParseKey(%q) = %q, %q; want %s", v, got, c, code)
			}
		}
	}
	t.Run("[http/K1] quoted, bare and with parameters", func(t *testing.T) {
		t.Parallel()
		for _, v := range []string{
			`a-1`, `"a-1"`, " \t\"a-1\"\t ", `  a-1 `, `"a-1";x`, `"a-1";x=1`, `"a-1";  x="q;,\"\\ ";y=?1;*z.-_9=a\b=c`, `"a-1";x=:YQ==:`,
		} {
			ok(t, v, "a-1")
		}
	})
	t.Run("[http/K2] a comma outside quotes is a list", func(t *testing.T) {
		t.Parallel()
		bad(t, keyMultiple, `a,b`, `a, b`, `a,a`, `"a","a"`, `"a", "b"`, `"a";x,"b"`, `"a";x=1,b`, `,`, `a,`)
	})
	t.Run("[http/K3] commas, semicolons, spaces and escapes inside quotes", func(t *testing.T) {
		t.Parallel()
		ok(t, `"a,b;c d"`, "a,b;c d")
		ok(t, `"a\"b\\c"`, `a"b\c`)
		ok(t, `"\\\""`, `\"`)
		ok(t, `"\""`, `"`)
		ok(t, `"\\"`, `\`)
		bad(t, keyMalformed, `"a\n"`, `"a\u0041"`, `"a\ "`, `"a\`, `"a\"`)
	})
	t.Run("[http/K4] a key is never cut short", func(t *testing.T) {
		t.Parallel()
		bad(t, keyMalformed, `"a`, `"a\"`, `"a"b`, `"a" b`, `"a""b"`, `"a" ;x`, `"a";`, `"a"; `, `"a";X`, `"a";x=`, `"a";x="`, `"a";x="\a"`, `"a";1x`, `"a";x y`, `"a";x=1 `+"\t;", `"a";x="b"c`, `"a"=1`,
			`a;b`, `a"b`, `a\b`, `a b`, `a "b"`, `;`, `\`)
	})
	t.Run("[http/K5] printable ASCII only, nothing decoded", func(t *testing.T) {
		t.Parallel()
		bad(t, keyMalformed, "a\x00b", "\x7f", "\"a\tb\"", "a\tb", "é", `"é"`, "\"a\x1f\"", "\"a\r\n\"", "\"a\";x=\"é\"", "\xff")
		ok(t, `a%20b`, `a%20b`)
		ok(t, `"%C3%A9"`, `%C3%A9`)
		ok(t, `caf%E9`, `caf%E9`)
	})
	t.Run("[http/K6] empty is not absent", func(t *testing.T) {
		t.Parallel()
		bad(t, keyEmpty, ``, ` `, "\t", `""`, `"  "`, ` "" `, `"";x=1`)
	})
	t.Run("[http/K7] the limits themselves are legal", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("k", 255)
		ok(t, long, long)
		ok(t, `"`+strings.Repeat(`\"`, 255)+`"`, strings.Repeat(`"`, 255))
		bad(t, keyLength, long+"k", `"`+long+`k"`, strings.Repeat("k", 1<<20))
	})
	t.Run("[http/K8] case and quoted spaces count", func(t *testing.T) {
		t.Parallel()
		ok(t, `A`, "A")
		ok(t, `a`, "a")
		ok(t, `" a"`, " a")
		ok(t, `"a "`, "a ")
		ok(t, `"a  b"`, "a  b")
		ok(t, `"a b"`, "a b")
	})
	t.Run("[http/K9] a bare value is never typed", func(t *testing.T) {
		t.Parallel()
		for _, v := range []string{"1", "-1.50", "1e3", "?1", "@1659578233", ":YWJj:", "token", "*a/b", "true", "2026-01-31", "(a)", "007"} {
			ok(t, v, v)
		}
	})
}

func TestStrictProfile(t *testing.T) {
	t.Parallel()
	t.Run("[http/K10] bare values get one refusal", func(t *testing.T) {
		t.Parallel()
		var first string
		for _, v := range []string{"a", "1", "?1", ":YQ==:", "@1", "a,b", "a b", "é", `a"b"`, "*", `\`} {
			_, err := readKey(v, true)
			if codeOf(t, err) != keyMalformed {
				t.Errorf("%q: %v", v, err)
			}
			if first == "" {
				first = err.Error()
			}
			if err.Error() != first {
				t.Errorf("%q is refused in other words: %v", v, err)
			}
		}
		if key, err := readKey(`"a"`, true); key != "a" || err != nil {
			t.Errorf("%q %v", key, err)
		}
		if _, err := readKey(` `, true); codeOf(t, err) != keyEmpty {
			t.Error(err)
		}
	})
}

// A second reading of section 3, by regular expressions. It knows right from wrong, not the code.
func readKeyAgain(value string) (string, bool) {
	const text = `"((?:[ !#-\[\]-~]|\\["\\])*)"`
	quoted := regexp.MustCompile(`^` + text + `(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` + text + `|[!#-+\--:<-~]+))?)*$`)
	bare := regexp.MustCompile(`^[!#-+\--:<-\[\]-~]+$`)
	value = regexp.MustCompile(`^[ \t]*|[ \t]*$`).ReplaceAllString(value, "")
	key := value
	if m := quoted.FindStringSubmatch(value); m != nil {
		key = regexp.MustCompile(`\\(.)`).ReplaceAllString(m[1], "$1")
	} else if !bare.MatchString(value) {
		return "", false
	}
	return key, strings.ReplaceAll(key, " ", "") != "" && len(key) <= 255
}

func FuzzParseKey(f *testing.F) {
	for _, v := range []string{`a`, `"a"`, `"a\"b\\";x="y";z=1`, `"a","b"`, "\x00", `"a`, ` `, `""`, `"a";x=\`, `a\`, `"a"; x`, `"\a,"`, `;`} {
		f.Add(v)
	}
	// [http/K15] no panic, and the second reading agrees
	f.Fuzz(func(t *testing.T, value string) {
		got, err := ParseKey(value)
		want, ok := readKeyAgain(value)
		if ok != (err == nil) || ok && got != want {
			t.Fatalf("ParseKey(%q) = %q, %v; the second reading says %q, %v", value, got, err, want, ok)
		}
		if ok {
			if again, err := ParseKey(FormatKey(got)); err != nil || again != got {
				t.Fatalf("ParseKey(FormatKey(%q)) = %q, %v", got, again, err)
			}
		}
	})
}

func FuzzFormatKey(f *testing.F) {
	for _, k := range []string{"a", `a"b\c`, " a ", ";,", strings.Repeat("k", 255), "é", "\n", ""} {
		f.Add(k)
	}
	// [http/K15] every legal key comes back
	f.Fuzz(func(t *testing.T, key string) {
		legal := strings.Trim(key, " ") != "" && len(key) <= 255 && !strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r > 0x7e })
		got, err := ParseKey(FormatKey(key))
		if legal != (err == nil) || legal && got != key {
			t.Fatalf("ParseKey(FormatKey(%q)) = %q, %v", key, got, err)
		}
	})
}
