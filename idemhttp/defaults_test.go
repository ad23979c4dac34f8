package idemhttp

import "testing"

func TestRulesOfARouteReplaceWhatExcludesThem(t *testing.T) {
	t.Parallel()
	base := Rules{KeyHeaders: []string{"X-Key"}, Exclude: []string{"/sent_at"}, Defaults: map[string]any{"/currency": "EUR"}, MaxKey: 40}
	for name, c := range map[string]struct {
		route Rules
		key   string
		text  string
	}{
		"nothing":           {Rules{}, "header X-Key", `body=canonical;exclude=/sent_at;defaults=/currency:"EUR"`},
		"pointer":           {Rules{KeyPointer: "/id"}, "body member /id", `body=canonical;exclude=/sent_at;defaults=/currency:"EUR"`},
		"parts":             {Rules{KeyFrom: []string{"query:id"}}, "query:id", `body=canonical;exclude=/sent_at;defaults=/currency:"EUR"`},
		"profile":           {Rules{Profile: "square"}, "body member /idempotency_key", `body=canonical;exclude=/sent_at;defaults=/currency:"EUR"`},
		"profile, no place": {Rules{Profile: "strict"}, "header X-Key", `body=canonical;exclude=/sent_at;defaults=/currency:"EUR"`},
		"include":           {Rules{Include: []string{"/currency"}}, "header X-Key", `body=canonical;include=/currency;defaults=/currency:"EUR"`},
		"raw":               {Rules{Fingerprint: FingerprintRaw}, "header X-Key", `body=raw`},
	} {
		r := mergeRules(c.route, base)
		keys, err := newKeySource(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sel, err := newSelection(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if keys.text != c.key || sel.encode() != c.text || keys.max != 40 {
			t.Errorf("%s: key in %s, at most %d bytes, %s", name, keys.text, keys.max, sel.encode())
		}
	}
	if len(base.KeyHeaders) != 1 || len(base.Exclude) != 1 {
		t.Error("the rules for all changed")
	}
}
