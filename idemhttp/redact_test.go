package idemhttp

import (
	"net/http"
	"testing"
)

func TestRedactionReplacesMembersAndNothingElse(t *testing.T) {
	t.Parallel()
	ok := func(doc, want string, pointers ...string) {
		t.Helper()
		r, err := newRedaction(pointers)
		if err != nil {
			t.Fatal(err)
		}
		got, fine := r.apply([]byte(doc))
		if !fine || string(got) != want {
			t.Errorf("%s %v: %s, %v; want %s", doc, pointers, got, fine, want)
		}
	}
	ok(`{"a": 1, "card" : "4242" ,"b":2}`, `{"a": 1, "card" : null ,"b":2}`, "/card")
	ok(`{"a":{"b":[{"s":1},{"s":{"x":[2]}}]}}`, `{"a":{"b":[{"s":null},{"s":null}]}}`, "/a/b/*/s")
	ok(`{"a":{"b":[{"s":1},{"s":2}]}}`, `{"a":{"b":[{"s":1},{"s":null}]}}`, "/a/b/1/s")
	ok(`{"s":1,"s":2}`, `{"s":null,"s":null}`, "/s")
	ok(`{"a/b":1,"m~n":2}`, `{"a/b":null,"m~n":null}`, "/a~1b", "/m~0n")
	ok(`{"caf\u00e9":1}`, `{"caf\u00e9":null}`, "/café")
	ok(`{"a":{"b":1}}`, `{"a":null}`, "/a", "/a/b")
	ok(`{"*":1}`, `{"*":null}`, "/*")
	ok(`{"a":1}`, `{"a":1}`, "/*")
	ok(` [1,2] `, ` [1,2] `, "/s")
	ok(`7`, `7`, "/s")
	for _, doc := range []string{``, `{`, `{} {}`, `{"a":1}x`, "\xff"} {
		r, _ := newRedaction([]string{"/a"})
		if got, fine := r.apply([]byte(doc)); fine {
			t.Errorf("%q is taken for JSON: %s", doc, got)
		}
	}
	for _, bad := range []string{"", "a", "/a~", "/a~2"} {
		if _, err := newRedaction([]string{bad}); err == nil {
			t.Errorf("pointer %q: no error", bad)
		}
	}
}

func TestAcceptsCoding(t *testing.T) {
	t.Parallel()
	ok := func(want bool, lines ...string) {
		t.Helper()
		h := http.Header{}
		if lines != nil {
			h["Accept-Encoding"] = lines
		}
		if got := acceptsCoding(h, "gzip"); got != want {
			t.Errorf("%q: %v, want %v", lines, got, want)
		}
	}
	ok(true)
	ok(true, "gzip")
	ok(true, "br, GZIP;q=0.5")
	ok(true, "*")
	ok(true, "br", "x-gzip")
	ok(false, "")
	ok(false, "identity")
	ok(false, "gzip;q=0")
	ok(false, "*, gzip; q=0")
	ok(false, "*;q=0.0")
	ok(false, "gzip;q=nonsense")
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"s":2}]}`))
	f.Add([]byte(`{"s":{"s":1},"s":[]}`))
	r, err := newRedaction([]string{"/s", "/a/*/s"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		out, ok := r.apply(doc)
		if !ok {
			return
		}
		again, ok := r.apply(out)
		if !ok || string(again) != string(out) {
			t.Errorf("%q became %q, then %q", doc, out, again)
		}
	})
}
