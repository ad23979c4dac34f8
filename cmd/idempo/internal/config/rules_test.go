package config

import (
	"strings"
	"testing"
)

// rule checks one kind of text against what it takes and what it refuses.
func rule(t *testing.T, check func(string) error, good, bad []string) {
	t.Helper()
	for _, s := range good {
		if err := check(s); err != nil {
			t.Errorf("%q is refused: %v", s, err)
		}
	}
	for _, s := range bad {
		err := check(s)
		if err == nil {
			t.Errorf("%q is accepted", s)
			continue
		}
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("the refusal of %q repeats the value: %v", s, err)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 600)
	for name, r := range map[string]struct {
		check     func(string) error
		good, bad []string
	}{
		"address":        {checkAddress, []string{":0", "127.0.0.1:80", "[::1]:7070", "localhost:65535"}, []string{"", "80", "host", "host:", "host:x", "host:70000", "host:-1", "1:2:3"}},
		"SQL name":       {checkSQLName, []string{"a", "_x", "idempo_2"}, []string{"", "A", "2a", "a-b", `a"b`, strings.Repeat("a", 41)}},
		"key id":         {checkKeyID, []string{"d1", "A_b-9"}, []string{"", "d.1", "d 1", strings.Repeat("a", 33)}},
		"digest key":     {checkDigestKey, []string{"0123456789abcdef0123456789abcdef"}, []string{"", "canary", strings.Repeat("x", 64)}},
		"encryption key": {checkEncryptionKey, []string{"0123456789abcdef0123456789abcdef"}, []string{"", "canary", "0123456789abcdef0123456789-canary", "0123456789abcdef0123456789abcdef-", strings.Repeat("x", 32)}},
		"token":          {checkToken, []string{"", "0123456789abcdef"}, []string{"canary", "0123456789 canary", "0123456789abcdé-"}},
		"postgres":       {checkPostgres, []string{"postgres://h/d", "postgresql://u:p@h:5/d?sslmode=require"}, []string{"", "h/d", "mysql://h/d", "host=h password=canary", "postgres://u:canary@h:bad port/d"}},
		"mysql":          {checkMySQL, []string{"mysql://h/d", "mariadb://u:p@h:5/d?tls=true"}, []string{"", "h/d", "mysql://h", "mysql://h/", "mysql:///d", "mysql://h/a/b", "postgres://h/d", "mysql://u:canary@h:bad port/d"}},
		"http":           {checkHTTP, []string{"http://h", "https://h:8/x?y"}, []string{"", "h", "ftp://h", "http://", "//h"}},
		"base":           {checkBase, []string{"http://h", "https://h:8/"}, []string{"http://h/x", "http://h?q", "http://u:p@h", "http://h#f", "h:80"}},
		"operation":      {checkOperation, []string{"pay", "A.b_c:d-1"}, []string{"", "-a", "a b", "a/b", strings.Repeat("a", 201)}},
		"header":         {checkHeader, []string{"X-Account", "a"}, []string{"", "a b", "a:", "ä"}},
		"method":         {checkMethod, []string{"PUT", "DELETE", "POST"}, []string{"", "put", "GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "P UT"}},
		"pointer":        {checkPointer, []string{"/", "/a/b", "/a~1b"}, []string{"", "a", "#/a"}},
		"network":        {checkNetwork, []string{"10.0.0.0/8", "::1", "fd00::/8", "127.0.0.1"}, []string{"", "10.0.0.0/33", "host", "10.0.0"}},
		"status":         {checkStatus, []string{"200", "404", "599"}, []string{"", "199", "600", "2xx", "0200"}},
		"pattern":        {checkPattern, []string{"[a-z]+", ""}, []string{"(", "[a", long, `(?=a)`}},
		"origin":         {checkOrigin, []string{"*", "https://shop.example", "http://localhost:3000"}, []string{"", "shop.example", "https://a/b", "https://a?x"}},
		"part":           {checkPart, []string{"body:/a", "query:q", "path:id"}, []string{"", "body:a", "body:", "header:x", "query"}},
		"mismatch":       {checkMismatch, []string{"422", "400", "409"}, []string{"", "404"}},
		"pointer status": {checkPointerStatus, []string{"410", "303"}, []string{"", "404"}},
		"method path":    {checkMethodPath, []string{"POST /a", "GET /a/b"}, []string{"", "/a", "post /a", "POST a"}},
		"probe":          {checkProbe, []string{"GET /p?ref={key}", "HEAD /p"}, []string{"", "POST /p", "GET http://h/p", "GET p"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule(t, r.check, r.good, r.bad)
		})
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "localhost:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false, "nonsense": false,
	} {
		if got := loopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

func TestMaskURL(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP14] a DSN is shown without what is secret in it", func(t *testing.T) {
		t.Parallel()
		for dsn, want := range map[string]string{
			"postgres://h/d": "postgres://h/d",
			"postgres://app@h:5432/d?sslmode=require":      "postgres://app@h:5432/d?sslmode=require",
			"postgres://app:canary@h/d":                    "postgres://app:***@h/d",
			"postgres://app:can%2Fary@h/d?password=canary": "postgres://app:***@h/d?password=***",
			"mysql://app:canary@h:3306/d?tls=true":         "mysql://app:***@h:3306/d?tls=true",
			"postgres://h/d?sslpassword=canary&a=b":        "postgres://h/d?a=b&sslpassword=***",
			"https://h/?client_secret=canary&token=canary": "https://h/?client_secret=***&token=***",
			"/var/lib/idempo.db":                           "",
			"canary":                                       "",
		} {
			if got := MaskURL(dsn); got != want {
				t.Errorf("%s is shown as %s, want %s", dsn, got, want)
			}
		}
	})
}

func TestURLScheme(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{"postgres://h": "postgres", "mysql://x": "mysql", "/a/b": "", "a.db": "", `C:\x`: "", "c://x": "", "./a://b": ""} {
		if got := urlScheme(s); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}

func TestQuoteYAML(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"plain": "plain", "127.0.0.1:80": "127.0.0.1:80", "": `""`, "a b": `"a b"`, "a: b": `"a: b"`, "-x": `"-x"`, "{x}": `"{x}"`, "x:": `"x:"`, "a\nb": `"a\nb"`, "*": `"*"`,
	} {
		if got := quoteYAML(s); got != want {
			t.Errorf("%q is written %s, want %s", s, got, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[string]string{"0s": "0s", "1500ms": "1s500ms", "90m": "1h30m", "24h": "1d", "36h": "1d12h", "2w": "14d"} {
		v, err := ParseDuration(d)
		if err != nil || FormatDuration(v) != want {
			t.Errorf("%s is written %s, want %s (%v)", d, FormatDuration(v), want, err)
		}
	}
	if FormatDuration(forever) != "forever" {
		t.Error("forever")
	}
}

func TestProblemText(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Problem{
		"f:1:2: a.b: bad":        {File: "f", Line: 1, Col: 2, Path: "a.b", Message: "bad"},
		"f:1:1: bad":             {File: "f", Line: 1, Col: 1, Message: "bad"},
		"flag --listen: a: bad":  {File: "flag --listen", Path: "a", Message: "bad"},
		"f: cannot be read: why": {File: "f", Message: "cannot be read: why"},
	} {
		if p.String() != want {
			t.Errorf("%q, want %q", p, want)
		}
	}
	ps := Problems{{Line: 3, Path: "c"}, {Line: 1, Col: 5}, {Line: 1, Col: 2}, {Line: 3, Path: "b"}}
	ps.sort()
	if ps[0].Col != 2 || ps[1].Col != 5 || ps[2].Path != "b" {
		t.Errorf("%v", ps)
	}
	if _, ok := AsProblems(ps); !ok {
		t.Error("not found again")
	}
}
