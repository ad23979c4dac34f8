package idemhttp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// vectorFile freezes recipe v1. UPDATE=1 fills in the digests of new cases; it never changes one that is there.
const vectorFile = "testdata/fingerprint_v1.json"

type vectors struct {
	Recipe string        `json:"recipe"`
	Cases  []*vectorCase `json:"cases"`
}

type vectorCase struct {
	Rows      string        `json:"rows"`
	Name      string        `json:"name"`
	Rules     *vectorRules  `json:"rules,omitempty"`
	Same      bool          `json:"same"`
	A         vectorRequest `json:"a"`
	B         vectorRequest `json:"b"`
	Selection string        `json:"selection"`
}

type vectorRules struct {
	Exclude     []string
	Include     []string
	Headers     []string
	Defaults    map[string]any
	PathValues  bool
	Fingerprint FingerprintMode
}

type vectorRequest struct {
	Method  string      `json:"method"`
	Target  string      `json:"target"`
	Pattern string      `json:"pattern,omitempty"`
	Headers [][2]string `json:"headers,omitempty"`
	Body    string      `json:"body,omitempty"`
	Parts   [][2]any    `json:"body_parts,omitempty"`  // text, how often
	Base64  []byte      `json:"body_base64,omitempty"` // what JSON text cannot hold
	Sum     string      `json:"sum"`
	Detail  string      `json:"detail"`
}

func readVectors(t *testing.T) *vectors {
	t.Helper()
	b, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

func (c *vectorCase) selection(t *testing.T) *selection {
	t.Helper()
	var r Rules
	if c.Rules != nil {
		r = Rules{Exclude: c.Rules.Exclude, Include: c.Rules.Include, Headers: c.Rules.Headers, Defaults: c.Rules.Defaults,
			PathValues: c.Rules.PathValues, Fingerprint: c.Rules.Fingerprint}
	}
	s, err := newSelection(r)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

func (v *vectorRequest) body() []byte {
	b := append([]byte(v.Body), v.Base64...)
	for _, p := range v.Parts {
		b = append(b, strings.Repeat(p[0].(string), int(p[1].(float64)))...)
	}
	return b
}

// parts is the request as a handler behind a ServeMux sees it.
func (v *vectorRequest) parts(t *testing.T, body content) (p parts) {
	t.Helper()
	r := httptest.NewRequest(v.Method, v.Target, nil)
	for _, h := range v.Headers {
		r.Header.Add(h[0], h[1])
	}
	if v.Pattern == "" {
		return parts{request: r, body: newPayload(r.Header, body, 1<<20)}
	}
	mux := http.NewServeMux()
	mux.HandleFunc(v.Pattern, func(_ http.ResponseWriter, r *http.Request) {
		p = parts{request: r, body: newPayload(r.Header, body, 1<<20)}
	})
	mux.ServeHTTP(httptest.NewRecorder(), r)
	if p.request == nil {
		t.Fatalf("%s does not match %s", v.Target, v.Pattern)
	}
	return p
}

func (v *vectorRequest) digest(t *testing.T, s *selection) (sum, detail []byte) {
	t.Helper()
	sum, detail, err := s.fingerprint(testMAC, v.parts(t, content{mem: v.body()}), true)
	if err != nil {
		t.Fatal(err)
	}
	return sum, detail
}

func TestFingerprintVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	fill := os.Getenv("UPDATE") != ""
	rows := map[string]bool{}
	t.Run("[http/FP1, FP2, FP3, FP4, FP5, FP6, FP7, FP8, FP9, FP10, FP11, FP12, FP13, FP20] same or not", func(t *testing.T) {
		for _, c := range v.Cases {
			rows[c.Rows] = true
			s := c.selection(t)
			a, detailA := c.A.digest(t, s)
			b, detailB := c.B.digest(t, s)
			if bytes.Equal(a, b) != c.Same {
				t.Errorf("%s %s: same is %v, want %v", c.Rows, c.Name, !c.Same, c.Same)
			}
			if c.Same && !bytes.Equal(detailA, detailB) {
				t.Errorf("%s %s: one request, two sets of member digests", c.Rows, c.Name)
			}
			if !c.Same && s.mode == FingerprintCanonical {
				if m, err := s.diff(testMAC, c.B.parts(t, content{mem: c.B.body()}), detailA); err != nil || len(m.Parts) == 0 {
					t.Errorf("%s %s: the difference is in no part: %+v, %v", c.Rows, c.Name, m, err)
				}
			}
		}
	})
	t.Run("[http/FP19] recipe v1 is frozen", func(t *testing.T) {
		if len(v.Cases) < 60 || len(rows) < 14 || v.Recipe != strings.TrimSuffix(recipePrefix, ";k=") {
			t.Fatalf("%d cases of %d rows, recipe %q", len(v.Cases), len(rows), v.Recipe)
		}
		frozen := func(name string, got string, want *string) {
			if *want == "" && fill {
				*want = got
			}
			if got != *want {
				t.Errorf("%s changed from %q to %q: that is another recipe", name, *want, got)
			}
		}
		for i, c := range v.Cases {
			s := c.selection(t)
			frozen(fmt.Sprint(i, " selection"), s.encode(), &c.Selection)
			for _, r := range []*vectorRequest{&c.A, &c.B} {
				sum, detail := r.digest(t, s)
				frozen(fmt.Sprint(i, " sum of ", c.Name), hex.EncodeToString(sum), &r.Sum)
				if s.mode != FingerprintNone {
					frozen(fmt.Sprint(i, " member digests of ", c.Name), hex.EncodeToString(detail), &r.Detail)
				}
			}
		}
	})
	t.Run("[http/FP10] a spooled body is the same body", func(t *testing.T) {
		for _, c := range v.Cases {
			s := c.selection(t)
			sum, detail, err := s.fingerprint(testMAC, c.A.parts(t, content{file: bytes.NewReader(c.A.body())}), true)
			if err != nil || hex.EncodeToString(sum) != c.A.Sum || s.mode != FingerprintNone && hex.EncodeToString(detail) != c.A.Detail {
				t.Errorf("%s %s: %v", c.Rows, c.Name, err)
			}
		}
	})
	t.Run("[http/FP16] the text of a selection is enough to compare", func(t *testing.T) {
		for _, c := range v.Cases {
			s, err := decodeSelection(c.Selection)
			if err != nil {
				t.Errorf("%q: %v", c.Selection, err)
				continue
			}
			if sum, _ := c.A.digest(t, &s); hex.EncodeToString(sum) != c.A.Sum {
				t.Errorf("%s %s: another digest by the decoded selection", c.Rows, c.Name)
			}
		}
	})
	if fill {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
