package idemhttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const formType = "application/x-www-form-urlencoded"

func compileKeys(t *testing.T, r Rules) *keySource {
	t.Helper()
	s, err := newKeySource(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keyed is a request with these header lines, "Name: value".
func keyed(lines ...string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/payments", nil)
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// extracted is the key, or the code of the refusal in angle brackets, or "<absent>".
func extracted(t *testing.T, s *keySource, r *http.Request, body string) string {
	t.Helper()
	key, present, err := s.extract(r, newPayload(r.Header, content{mem: []byte(body)}, 1<<20))
	switch {
	case err != nil:
		if key != "" || present {
			t.Errorf("a refusal came with %q, %v", key, present)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the refusal repeats the key: %v", err)
		}
		return "<" + codeOf(t, err) + ">"
	case !present:
		return "<absent>"
	}
	return key
}

func TestKeyHeader(t *testing.T) {
	t.Parallel()
	s := compileKeys(t, Rules{KeyHeaders: []string{"idempotency-key", "X-Idempotency-Key", "Idempotency-Key"}})
	check := func(t *testing.T, want string, lines ...string) {
		t.Helper()
		if got := extracted(t, s, keyed(lines...), ""); got != want {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
	t.Run("[http/K1] any accepted name, any spelling", func(t *testing.T) {
		t.Parallel()
		check(t, "a", "Idempotency-Key: a")
		check(t, "a", `X-Idempotency-Key: "a";v=1`)
	})
	t.Run("[http/K2] two lines are two keys", func(t *testing.T) {
		t.Parallel()
		check(t, "<key_multiple>", "Idempotency-Key: a", "Idempotency-Key: a")
		check(t, "<key_multiple>", "Idempotency-Key: a", "X-Idempotency-Key: a")
		check(t, "<key_multiple>", "Idempotency-Key: ", "X-Idempotency-Key: a")
		check(t, "<key_multiple>", `Idempotency-Key: "secret", "secret"`)
	})
	t.Run("[http/K6] an empty line is not absent", func(t *testing.T) {
		t.Parallel()
		check(t, "<absent>")
		check(t, "<key_empty>", "Idempotency-Key: ")
		optional := compileKeys(t, Rules{Key: KeyOptional})
		if got := extracted(t, optional, keyed("Idempotency-Key:  "), ""); got != "<key_empty>" {
			t.Error(got)
		}
	})
	t.Run("[http/K13] the refusal of an absent key says where to put it", func(t *testing.T) {
		t.Parallel()
		err := s.missing()
		if codeOf(t, err) != keyMissing || !strings.Contains(err.Error(), "header Idempotency-Key or X-Idempotency-Key") {
			t.Error(err)
		}
		if !s.required || compileKeys(t, Rules{Key: KeyOptional}).required {
			t.Error("required is not what Key says")
		}
	})
}

func TestKeyProfiles(t *testing.T) {
	t.Parallel()
	t.Run("[http/K11] lengths and places", func(t *testing.T) {
		t.Parallel()
		limits := func(max int, profile, header string) {
			t.Helper()
			s := compileKeys(t, Rules{Profile: profile})
			for n, want := range map[int]string{1: "", max: "", max + 1: "<key_length>"} {
				key := strings.Repeat("k", n)
				if want == "" {
					want = key
				}
				if got := extracted(t, s, keyed(header+": "+key), ""); got != want {
					t.Errorf("%s: %d bytes: %.20q", profile, n, got)
				}
			}
		}
		limits(255, "", "Idempotency-Key")
		limits(255, "default", "Idempotency-Key")
		limits(255, "stripe", "Idempotency-Key")
		limits(64, "adyen", "Idempotency-Key")
		limits(108, "paypal", "PayPal-Request-Id")

		square := compileKeys(t, Rules{Profile: "square"})
		r := keyed("Content-Type: application/json", "Idempotency-Key: other")
		for n, want := range map[int]string{1: "k", 45: strings.Repeat("k", 45), 46: "<key_length>"} {
			if got := extracted(t, square, r, `{"idempotency_key":"`+strings.Repeat("k", n)+`"}`); got != want {
				t.Errorf("square: %d bytes: %q", n, got)
			}
		}
	})
	t.Run("[http/K11] fields refine a profile", func(t *testing.T) {
		t.Parallel()
		s := compileKeys(t, Rules{Profile: "adyen", KeyHeaders: []string{"Request-Key"}, MinKey: 3, MaxKey: 1024, KeyPattern: `[a-z]+|[0-9]+`})
		for value, want := range map[string]string{
			"abc": "abc", "ab": "<key_length>", strings.Repeat("a", 1024): strings.Repeat("a", 1024), strings.Repeat("a", 1025): "<key_length>",
			"abc1": "<key_malformed>", "123": "123", "1abc": "<key_malformed>",
		} {
			if got := extracted(t, s, keyed("Request-Key: "+value), ""); got != want {
				t.Errorf("%.20q: %.20q, want %.20q", value, got, want)
			}
		}
	})
	t.Run("[http/K10] uuid", func(t *testing.T) {
		t.Parallel()
		s := compileKeys(t, Rules{Profile: "uuid"})
		for value, want := range map[string]string{
			"0b7bbd8a-9a4c-4f3e-9c55-0d9d5c0d3c11":   "0b7bbd8a-9a4c-4f3e-9c55-0d9d5c0d3c11",
			"0B7BBD8A-9a4c-0f3e-0c55-0d9d5c0d3c11":   "0B7BBD8A-9a4c-0f3e-0c55-0d9d5c0d3c11",
			`"00000000-0000-0000-0000-000000000000"`: "00000000-0000-0000-0000-000000000000",
			"0b7bbd8a9a4c4f3e9c550d9d5c0d3c11":       "<key_malformed>",
			"0b7bbd8a-9a4c-4f3e-9c55-0d9d5c0d3c1":    "<key_malformed>",
			"0b7bbd8a-9a4c-4f3e-9c55-0d9d5c0d3c1g":   "<key_malformed>",
			"0b7bbd8a-9a4c-4f3e-9c55-0d9d5c0d3c111":  "<key_malformed>",
			"{b7bbd8a-9a4c-4f3e-9c55-0d9d5c0d3c11}":  "<key_malformed>",
			strings.Repeat("a", 2000):                "<key_malformed>",
			"order-secret":                           "<key_malformed>",
			`""`:                                     "<key_empty>",
		} {
			if got := extracted(t, s, keyed("Idempotency-Key: "+value), ""); got != want {
				t.Errorf("%.40q: %q, want %q", value, got, want)
			}
		}
	})
	t.Run("[http/K10] strict", func(t *testing.T) {
		t.Parallel()
		s := compileKeys(t, Rules{Profile: "strict"})
		if got := extracted(t, s, keyed(`Idempotency-Key: "a"`), ""); got != "a" {
			t.Error(got)
		}
		if got := extracted(t, s, keyed(`Idempotency-Key: a`), ""); got != "<key_malformed>" {
			t.Error(got)
		}
	})
}

func TestKeyPointer(t *testing.T) {
	t.Parallel()
	s := compileKeys(t, Rules{KeyPointer: "/meta/request~1key"})
	flat := compileKeys(t, Rules{KeyPointer: "/request_id"})
	if !s.needBody() {
		t.Error("the body is not asked for")
	}
	t.Run("[http/K12] a JSON string, taken literally", func(t *testing.T) {
		t.Parallel()
		for body, want := range map[string]string{
			`{"meta":{"request/key":"a-1"}}`:                              "a-1",
			`{"meta":{"request/key":"\"a\""}}`:                            `"a"`,
			`{"meta":{"request/key":" a,b;\u0041 "}}`:                     " a,b;A ",
			`{"meta":{"request/key":"a\tb"}}`:                             "<key_malformed>",
			`{"meta":{"request/key":"é"}}`:                                "<key_malformed>",
			`{"meta":{"request/key":""}}`:                                 "<key_empty>",
			`{"meta":{"request/key":"  "}}`:                               "<key_empty>",
			`{"meta":{"request/key":12}}`:                                 "<key_malformed>",
			`{"meta":{"request/key":null}}`:                               "<key_malformed>",
			`{"meta":{"request/key":["a"]}}`:                              "<key_malformed>",
			`{"meta":{"request/key":"a","request/key":"a"}}`:              "<key_malformed>",
			`{"meta":{"request/key":"a"}} {}`:                             "<key_malformed>",
			`{"meta":{"request/key":"` + strings.Repeat("k", 256) + `"}}`: "<key_length>",
			`{"meta":{}}`:  "<absent>",
			`{"meta":"x"}`: "<absent>",
			`[]`:           "<absent>",
			``:             "<absent>",
		} {
			if got := extracted(t, s, keyed("Content-Type: application/json", "Idempotency-Key: header"), body); got != want {
				t.Errorf("%.60s: %q, want %q", body, got, want)
			}
		}
	})
	t.Run("[http/K12] a form field", func(t *testing.T) {
		t.Parallel()
		for body, want := range map[string]string{
			"request_id=a-1&amount=2":   "a-1",
			"request_id=a+%2C1":         "a ,1",
			"request_id=a&request_id=a": "<key_malformed>",
			"request_id=%zz":            "<key_malformed>",
			"request_id=":               "<key_empty>",
			"amount=2":                  "<absent>",
			"":                          "<absent>",
		} {
			if got := extracted(t, flat, keyed("Content-Type: "+formType), body); got != want {
				t.Errorf("%s: %q, want %q", body, got, want)
			}
		}
		if got := extracted(t, s, keyed("Content-Type: "+formType), "meta=1"); got != "<absent>" {
			t.Error(got)
		}
	})
	t.Run("[http/K12] a part of a multipart form", func(t *testing.T) {
		t.Parallel()
		part := func(disposition, value string) string {
			return "--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + value + "\r\n"
		}
		for body, want := range map[string]string{
			part(`name="x"`, "1") + part(`name="request_id"`, "a-1") + "--b--\r\n":        "a-1",
			part(`name="request_id"`, "a") + part(`name="request_id"`, "a") + "--b--\r\n": "<key_malformed>",
			part(`name="request_id"; filename="f"`, "a") + "--b--\r\n":                    "<key_malformed>",
			part(`name="request_id"`, strings.Repeat("k", 5000)) + "--b--\r\n":            "<key_length>",
			part(`name="x"`, "1") + "--b--\r\n":                                           "<absent>",
			part(`name="request_id"`, "a-1") + "--b--\r\ntrailing":                        "<key_malformed>",
		} {
			if got := extracted(t, flat, keyed(`Content-Type: multipart/form-data; boundary=b`), body); got != want {
				t.Errorf("%.80q: %q, want %q", body, got, want)
			}
		}
	})
	t.Run("[http/K12] other bodies have no members", func(t *testing.T) {
		t.Parallel()
		if got := extracted(t, flat, keyed("Content-Type: text/plain"), `{"request_id":"a"}`); got != "<absent>" {
			t.Error(got)
		}
	})
}

func TestKeyFrom(t *testing.T) {
	t.Parallel()
	serve := func(t *testing.T, s *keySource, target, body string) (got string) {
		t.Helper()
		mux := http.NewServeMux()
		mux.HandleFunc("POST /a/{account}/pay", func(w http.ResponseWriter, r *http.Request) { got = extracted(t, s, r, body) })
		r := httptest.NewRequest("POST", target, nil)
		r.Header.Set("Content-Type", "application/json")
		mux.ServeHTTP(httptest.NewRecorder(), r)
		return got
	}
	s := compileKeys(t, Rules{KeyFrom: []string{"body:/order/id", "query:clientToken", "path:account"}})
	t.Run("[http/K16] parts are literal and joined by length", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ target, body, want string }{
			{"/a/acct/pay?clientToken=t", `{"order":{"id":"o"}}`, "1:o1:t4:acct"},
			{"/a/acct/pay?clientToken=t+%2C", `{"order":{"id":"\"o\""}}`, `3:"o"3:t ,4:acct`},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":120}}`, "3:1201:t4:acct"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":1.20e2}}`, "3:1201:t4:acct"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":-0}}`, "1:01:t4:acct"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":-90071992547409930000001}}`, "24:-900719925474099300000011:t4:acct"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":"ü"}}`, "2:ü1:t4:acct"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":1.5}}`, "<key_malformed>"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":true}}`, "<key_malformed>"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":1,"id":1}}`, "<key_malformed>"},
			{"/a/acct/pay?clientToken=t", `{"order":{"id":1e999999999}}`, "<key_length>"},
			{"/a/acct/pay?clientToken=t&clientToken=t", `{"order":{"id":"o"}}`, "<key_malformed>"},
			{"/a/acct/pay?clientToken=%zz", `{"order":{"id":"o"}}`, "<key_malformed>"},
			{"/a/acct/pay?clientToken=%00", `{"order":{"id":"o"}}`, "<key_malformed>"},
			{"/a/acct/pay?clientToken=", `{"order":{"id":"o"}}`, "<key_empty>"},
			{"/a/acct/pay", `{"order":{"id":"o"}}`, "<absent>"},
			{"/a/acct/pay?clientToken=t", `{"order":{}}`, "<absent>"},
		} {
			if got := serve(t, s, c.target, c.body); got != c.want {
				t.Errorf("%s %s: %q, want %q", c.target, c.body, got, c.want)
			}
		}
	})
	t.Run("[http/K16] no two tuples share a key", func(t *testing.T) {
		t.Parallel()
		seen := map[string]string{}
		for _, id := range []string{"a", "ab", "a1:b", "1:a", "a1:"} {
			for _, token := range []string{"b", "bb", "1:b", "b1:b", ":"} {
				got := serve(t, s, "/a/acct/pay?clientToken="+token, `{"order":{"id":"`+id+`"}}`)
				if other, twice := seen[got]; twice {
					t.Errorf("%s+%s and %s: %q", id, token, other, got)
				}
				seen[got] = id + "+" + token
			}
		}
	})
	t.Run("[http/K16] together 1,024 bytes", func(t *testing.T) {
		t.Parallel()
		body := func(n int) string { return `{"order":{"id":"` + strings.Repeat("k", n) + `"}}` }
		if got := serve(t, s, "/a/acct/pay?clientToken=t", body(1019)); !strings.HasSuffix(got, "k1:t4:acct") {
			t.Errorf("%.40q", got)
		}
		if got := serve(t, s, "/a/acct/pay?clientToken=t", body(1020)); got != "<key_length>" {
			t.Errorf("%.40q", got)
		}
	})
	t.Run("[http/K16] profile aws", func(t *testing.T) {
		t.Parallel()
		aws := compileKeys(t, Rules{Profile: "aws"})
		for _, c := range []struct{ target, body, want string }{
			{"/a/x/pay?ClientToken=t-1", ``, "3:t-1"},
			{"/a/x/pay", `{"ClientToken":"t-1"}`, "3:t-1"},
			{"/a/x/pay?ClientToken=t-1", `{"ClientToken":"t-1"}`, "<key_malformed>"},
			{"/a/x/pay", `{"ClientToken":["t-1"]}`, "<key_malformed>"},
			{"/a/x/pay", `{"ClientToken":"` + strings.Repeat("t", 64) + `"}`, "64:" + strings.Repeat("t", 64)},
			{"/a/x/pay", `{"ClientToken":"` + strings.Repeat("t", 65) + `"}`, "<key_length>"},
			{"/a/x/pay?clienttoken=t", `{}`, "<absent>"},
		} {
			if got := serve(t, aws, c.target, c.body); got != c.want {
				t.Errorf("%s %s: %q, want %q", c.target, c.body, got, c.want)
			}
		}
	})
	t.Run("[http/K16] only a body part waits for the body", func(t *testing.T) {
		t.Parallel()
		if !s.needBody() || compileKeys(t, Rules{KeyFrom: []string{"query:a", "path:b"}}).needBody() || !compileKeys(t, Rules{Profile: "aws"}).needBody() || compileKeys(t, Rules{}).needBody() {
			t.Error("needBody is wrong")
		}
	})
}

func TestKeyRuleMistakes(t *testing.T) {
	t.Parallel()
	bad := func(t *testing.T, r Rules, wants ...string) {
		t.Helper()
		_, err := newKeySource(r)
		if err == nil {
			t.Fatalf("%+v is accepted", r)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\ndoes not say %q", err, want)
			}
		}
	}
	t.Run("[http/K17] headers that are new on every attempt", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"X-Request-Id", "x-request-id", "X-Correlation-ID", "traceparent", "X-B3-TraceId", "X-Amzn-Trace-Id"} {
			bad(t, Rules{KeyHeaders: []string{name}}, "counts attempts or traces", "every retry", "AttemptHeaderAsKey")
			s, err := newKeySource(Rules{KeyHeaders: []string{name}, AttemptHeaderAsKey: true})
			if err != nil || len(s.warnings) != 1 || !strings.Contains(s.warnings[0], http.CanonicalHeaderKey(name)) {
				t.Errorf("%s: %v %v", name, s, err)
			}
		}
		if s := compileKeys(t, Rules{KeyHeaders: []string{"PayPal-Request-Id", "X-Idempotency-Key"}}); len(s.warnings) != 0 {
			t.Error(s.warnings)
		}
	})
	t.Run("[security/SEC50] patterns are bounded", func(t *testing.T) {
		t.Parallel()
		bad(t, Rules{KeyPattern: strings.Repeat("a", 513)}, "513 bytes", "512")
		bad(t, Rules{KeyPattern: strings.Repeat(`[a-z]{1000}`, 11)}, "instructions", "10000")
		bad(t, Rules{KeyPattern: `(a`}, "KeyPattern")
		bad(t, Rules{KeyPattern: `a)|(?:b`}, "KeyPattern")
		compileKeys(t, Rules{KeyPattern: strings.Repeat("a", 512)})
		compileKeys(t, Rules{KeyPattern: `[a-z0-9]{900}`})
	})
	t.Run("all mistakes at once, each with what to write", func(t *testing.T) {
		t.Parallel()
		bad(t, Rules{Key: "maybe", Profile: "acme", KeyHeaders: []string{"bad name", "Authorization"}, KeyPointer: "x", MinKey: -1, KeyPattern: "("},
			"KeyRequired or KeyOptional", "one of default, strict", "only one of KeyHeaders, KeyPointer and KeyFrom", "begin it with", "not below 0", "KeyPattern")
		bad(t, Rules{KeyHeaders: []string{"bad name", "Authorization", "Host"}}, `"bad name"`, "credential", "connection")
		bad(t, Rules{KeyFrom: []string{"body:id", "header:x", "query:", "path:a", "path:a"}, KeyPattern: "a"}, "body:/pointer", `"header:x"`, `"query:"`, "twice", "one part", "begin it with")
		bad(t, Rules{MaxKey: 1025}, "1024")
		bad(t, Rules{MinKey: 300}, "300", "255")
		bad(t, Rules{KeyPointer: "/a~2"}, `"~0"`)
	})
}
