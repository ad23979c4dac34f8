package webhook

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func TestScan(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W14] what is JSON, to 200 levels", func(t *testing.T) {
		for _, doc := range []string{"0", "-1.5e+9", `""`, " null ", "[]", "{}", `[1,{"a":[true,false]}]`, `"\u00e9\n"`, strings.Repeat("[", 200) + strings.Repeat("]", 200)} {
			if !valid([]byte(doc)) {
				t.Errorf("%.40s is refused", doc)
			}
		}
		for _, doc := range []string{"", " ", "01", "1.", "+1", "1e", "tru", "nulll", "[1,]", "[,1]", "{,}", `{"a"}`, `{"a":}`, `{a:1}`, `{"a":1,}`, "[1 2]", `"`, `"\x"`, `"\u12"`,
			"\"\n\"", "1 1", "}", strings.Repeat("[", 202) + strings.Repeat("]", 202), strings.Repeat("[", 1<<20)} {
			if valid([]byte(doc)) {
				t.Errorf("%.40s is accepted", doc)
			}
		}
	})
	doc := []byte(`{"a":{"b/c":{"~d":[10,{"e":"x"}]}}, "":{"":"empty"}, "n":-7, "twice":1, "twice":2}`)
	t.Run("[webhooks/V20] pointers", func(t *testing.T) {
		for pointer, want := range map[string]string{"/a/b~1c/~0d/0": "10", "/a/b~1c/~0d/1/e": "x", "//": "empty", "/n": "-7"} {
			if got, ok := textAt(doc, pointer); !ok || got.Text != want {
				t.Errorf("%s: %q %v", pointer, got.Text, ok)
			}
		}
		for _, pointer := range []string{"", "/a", "/a/b~1c/~0d/2", "/a/b~1c/~0d/01", "/a/b~1c/~0d/-1", "/a/b~1c/~0d/-", "/twice", "/A", "/a/b", "/n/0", "/missing/x"} {
			if got, ok := textAt(doc, pointer); ok {
				t.Errorf("%s: %q", pointer, got.Text)
			}
		}
	})
	t.Run("[webhooks/D4] a cut leaves everything else", func(t *testing.T) {
		if got := string(without(doc, []string{"/n", "/a", "/missing"})); got != `{"a":, "":{"":"empty"}, "n":, "twice":1, "twice":2}` {
			t.Error(got)
		}
		if got := string(without([]byte("no json"), []string{"/n"})); got != "no json" {
			t.Error(got)
		}
	})
}

// The standard library is the second reading: what both call JSON is the same, but for what only one limits.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9",null]}`, "[]", "{", `"\ud800"`, " 1 ", `{"a":1,"a":2}`} {
		f.Add([]byte(seed), "/a/0")
	}
	f.Fuzz(func(t *testing.T, doc []byte, pointer string) {
		ours, theirs := valid(doc), json.Valid(doc)
		if ours && !theirs || !ours && theirs && !deep(doc) {
			t.Fatalf("valid %v, encoding/json %v", ours, theirs)
		}
		if !ours || pointer != "" && pointer[0] != '/' {
			return
		}
		if at, ok := find(doc, span{0, len(doc)}, pointer); ok && !json.Valid(doc[at.from:at.to]) {
			t.Fatalf("%q at %q is no value", doc[at.from:at.to], pointer)
		}
		if v, ok := textAt(doc, pointer); ok && !v.IsString {
			if _, err := strconv.ParseInt(v.Text, 10, 64); err != nil && len(v.Text) < 18 {
				t.Fatalf("%q is no integer", v.Text)
			}
		}
		if list, ok := elements(doc, pointer); ok {
			for _, at := range list {
				if !json.Valid(doc[at.from:at.to]) {
					t.Fatalf("element %q", doc[at.from:at.to])
				}
			}
		}
		if len(without(doc, []string{pointer})) > len(doc) {
			t.Fatal("a cut grew")
		}
	})
}

// deep tells documents that nest deeper than we read.
func deep(doc []byte) bool {
	return strings.Count(string(doc), "[")+strings.Count(string(doc), "{") > maxDepth
}

func FuzzEntries(f *testing.F) {
	f.Add("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1a,x v9,")
	f.Fuzz(func(t *testing.T, header string) {
		var v1, v1a codes
		if err := entries(header, &v1, &v1a); err == nil && v1.n+v1a.n > strings.Count(header, ",") {
			t.Fatalf("%d codes of %q", v1.n+v1a.n, header)
		}
	})
}

func FuzzPairs(f *testing.F) {
	f.Add("t=1,v1=00", ",")
	p := Profile{List: List{Separator: ",", Tag: "v1", Time: "t"}}.withDefaults()
	f.Fuzz(func(t *testing.T, header, sep string) {
		if sep == "" {
			return
		}
		q := p
		q.List.Separator = sep
		var list codes
		if ts, err := pairs(header, &q, &list); err == nil && (list.n == 0 || !strings.Contains(header, "t="+ts)) {
			t.Fatalf("%q", header)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add("g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	f.Fuzz(func(t *testing.T, text string) {
		var out [32]byte
		for _, e := range []Encoding{EncodingHex, EncodingBase64, EncodingBase64URL} {
			if decode(out[:], text, e) && len(text) != map[Encoding]int{EncodingHex: 64, EncodingBase64: 44, EncodingBase64URL: 43}[e] {
				t.Fatalf("%s of %d bytes", e, len(text))
			}
		}
		_, _ = blob(text)
		_, _ = signedTime(text, UnitSeconds)
		_, _ = signedTime(text, UnitRFC3339)
	})
}

// Whatever a sender writes, nothing panics, and nothing is accepted.
func FuzzVerify(f *testing.F) {
	var all []*Verifier
	for _, p := range Providers() {
		text := "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
		s := Source{Name: "f", Provider: p.Name, PublicURL: "https://a.example/", Topics: []string{"arn"}, Secrets: []Secret{FromText("1", text)}}
		switch p.SecretForm {
		case FormNone:
			s.Secrets = nil
		case FormSPKI:
			continue
		}
		v, err := NewVerifier(s)
		if err != nil {
			f.Fatal(p.Name, err)
		}
		all = append(all, v)
	}
	f.Add("t=1,v1=00", "1780000000", "POST", "a=1", []byte(`{"Type":"Notification"}`))
	f.Fuzz(func(t *testing.T, code, ts, method, query string, body []byte) {
		for _, v := range all {
			h := map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}}
			for _, name := range []string{v.profile.Header, v.profile.Time.Header, "Webhook-Id", "Webhook-Signature", "Webhook-Timestamp", "X-Hubspot-Signature", "X-Hubspot-Signature-Version"} {
				if name != "" {
					h[name] = []string{code}
				}
			}
			if v.profile.Time.Header != "" {
				h[v.profile.Time.Header] = []string{ts}
			}
			req := Request{Method: method, Query: query, Header: h, Body: body}
			if _, err := Verify(v, req, testTime()); err == nil {
				t.Fatalf("%s accepts", v.source.Provider)
			} else if reason, _ := IsRefusal(err); reason == ReasonPanic {
				t.Fatal(err)
			}
			doc, ok := inflate(&req, 1<<16)
			if ok {
				v.split(&req, doc) // must not panic
			}
		}
	})
}
