package idemhttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

const (
	defaultKeyHeader = "Idempotency-Key"

	maxPatternSource  = 512
	maxPatternProgram = 10_000
)

// keySource says where the key of a request is and which keys are legal. It is compiled from Rules, immutable, and safe for
// concurrent use.
type keySource struct {
	required bool
	headers  []string // canonical names; none when the key comes from elsewhere
	pointer  []string // into the body, instead of headers
	parts    keyParts // instead of both
	min, max int
	strict   bool
	uuid     bool
	pattern  *regexp.Regexp
	text     string // where the key is, for people
	warnings []string
}

// newKeySource compiles the key fields of r. The error joins every mistake, each with what to write instead.
func newKeySource(r Rules) (*keySource, error) {
	s := &keySource{min: 1, max: defaultMaxKey}
	var mistakes []error
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	switch r.Key {
	case "", KeyRequired:
		s.required = true
	case KeyOptional:
	default:
		mistake("Key is %q; set KeyRequired or KeyOptional", r.Key)
	}
	headers, pointer, from, ok := s.profile(r)
	if !ok {
		mistake("Profile is %q; set one of default, strict, uuid, stripe, adyen, square, paypal, aws", r.Profile)
	}
	given := 0
	for _, set := range []bool{len(r.KeyHeaders) > 0, r.KeyPointer != "", len(r.KeyFrom) > 0} {
		if set {
			given++
		}
	}
	if given > 1 {
		mistake("the key has one source; set only one of KeyHeaders, KeyPointer and KeyFrom")
	}
	switch {
	case len(from) > 0:
		mistakes = append(mistakes, s.fromParts(from))
	case pointer != "":
		tokens, err := parsePointer(pointer)
		if err != nil {
			mistake("KeyPointer: %w", err)
		}
		s.pointer, s.text = tokens, "body member "+pointer
	default:
		mistakes = append(mistakes, s.fromHeaders(headers, r.AttemptHeaderAsKey))
	}
	mistakes = append(mistakes, s.bounds(r), s.matching(r.KeyPattern))
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return s, nil
}

// profile sets what a profile says and gives back where the key is, which the fields of r decide before it.
func (s *keySource) profile(r Rules) (headers []string, pointer string, from []string, known bool) {
	headers, pointer, from = r.KeyHeaders, r.KeyPointer, r.KeyFrom
	own := len(headers) > 0 || pointer != "" || len(from) > 0
	known = true
	switch r.Profile {
	case "", "default", "stripe":
	case "strict":
		s.strict = true
	case "uuid":
		s.uuid, s.max = true, highestMaxKey
	case "adyen":
		s.max = 64
	case "square":
		s.max = 45
		if !own {
			pointer = "/idempotency_key"
		}
	case "paypal":
		s.max = 108
		if !own {
			headers = []string{"PayPal-Request-Id"}
		}
	case "aws":
		s.max = 64
		if !own {
			from = []string{"aws:ClientToken"}
		}
	default:
		known = false
	}
	if len(r.KeyFrom) > 0 && r.Profile != "aws" {
		s.max = highestMaxKey
	}
	if len(headers) == 0 && pointer == "" && len(from) == 0 {
		headers = []string{defaultKeyHeader}
	}
	return headers, pointer, from, known
}

func (s *keySource) fromParts(list []string) error {
	s.text = strings.Join(list, " + ")
	if list[0] == "aws:ClientToken" && len(list) == 1 {
		s.text = "query or body member ClientToken"
		s.parts = keyParts{{text: s.text, place: placeQueryOrBody, name: "ClientToken", pointer: []string{"ClientToken"}}}
		return nil
	}
	var err error
	s.parts, err = parseKeyParts("KeyFrom", list)
	return err
}

func (s *keySource) fromHeaders(names []string, attempts bool) error {
	var mistakes []error
	for _, name := range names {
		canonical := http.CanonicalHeaderKey(name)
		switch why := unfitHeader(canonical); {
		case !isToken(name):
			mistakes = append(mistakes, fmt.Errorf("KeyHeaders: %q is no header name; name one as in %q", name, defaultKeyHeader))
			continue
		case why != "":
			mistakes = append(mistakes, fmt.Errorf("KeyHeaders: %s %s; name another header", canonical, why))
		case attemptHeader(canonical) && !attempts:
			mistakes = append(mistakes, fmt.Errorf("KeyHeaders: %s counts attempts or traces: proxies and clients renew it on every retry, so that no two attempts would share a key; "+
				"name a header that the caller repeats, or set AttemptHeaderAsKey where yours do", canonical))
		case attemptHeader(canonical):
			s.warnings = append(s.warnings, "key header "+canonical+" counts attempts or traces; a retry that renews it runs again")
		}
		if !slices.Contains(s.headers, canonical) {
			s.headers = append(s.headers, canonical)
		}
	}
	s.text = "header " + strings.Join(s.headers, " or ")
	return errors.Join(mistakes...)
}

// attemptHeader names the headers that are new on every attempt. name is canonical.
func attemptHeader(name string) bool {
	switch name {
	case "X-Request-Id", "X-Correlation-Id", "Traceparent", "Tracestate", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "B3":
		return true
	}
	return strings.HasPrefix(name, "X-B3-")
}

// unfitHeader says why a header can never be a key.
func unfitHeader(name string) string {
	switch name {
	case "Authorization", "Cookie", "Proxy-Authorization":
		return "is a credential"
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Keep-Alive", "Te", "Upgrade", "Expect":
		return "belongs to the connection"
	}
	return ""
}

func (s *keySource) bounds(r Rules) error {
	if r.MinKey < 0 || r.MaxKey < 0 {
		return errors.New("MinKey and MaxKey are bytes, not below 0; leave them out for the profile's")
	}
	if r.MaxKey > highestMaxKey || r.MinKey > highestMaxKey {
		return fmt.Errorf("MinKey %d, MaxKey %d: a key has at most %d bytes", r.MinKey, r.MaxKey, highestMaxKey)
	}
	s.min, s.max = cmp.Or(r.MinKey, s.min), cmp.Or(r.MaxKey, s.max)
	if s.min > s.max {
		return fmt.Errorf("no key has at least %d and at most %d bytes; change MinKey or MaxKey", s.min, s.max)
	}
	return nil
}

// matching compiles KeyPattern, which the whole key must match.
func (s *keySource) matching(source string) error {
	if source == "" {
		return nil
	}
	if len(s.parts) > 1 {
		return errors.New("KeyPattern needs a key in one part; KeyFrom joins several")
	}
	var err error
	s.pattern, err = compilePattern("KeyPattern", source)
	return err
}

// compilePattern compiles an RE2 expression that must match the whole text, within the bounds that every configured pattern has.
func compilePattern(field, source string) (*regexp.Regexp, error) {
	if len(source) > maxPatternSource {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed; write a shorter one", field, len(source), maxPatternSource)
	}
	if _, err := syntax.Parse(source, syntax.Perl); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	whole := `\A(?:` + source + `)\z`
	tree, err := syntax.Parse(whole, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	if n := len(program.Inst); n > maxPatternProgram {
		return nil, fmt.Errorf("%s compiles to %d instructions, at most %d are allowed; use smaller counts", field, n, maxPatternProgram)
	}
	return regexp.Compile(whole)
}

// needBody reports whether extract needs the body: the check of the key then comes after reading it.
func (s *keySource) needBody() bool { return len(s.pointer) > 0 || s.parts.needBody() }

// extract is the key of r. present is false when there is none, which is an error only where the key is required, see missing.
// body may be nil unless needBody. An error is a *refusal with the code of a key or body_too_large, or a failure to read
// a spooled body. The key is at most 1,024 bytes, plus the length prefixes of KeyFrom.
func (s *keySource) extract(r *http.Request, body *payload) (key string, present bool, err error) {
	switch {
	case len(s.parts) > 0:
		return s.extractParts(r, body)
	case len(s.pointer) > 0:
		key, present, err = body.member(s.pointer, false)
		if err == nil && present {
			err = checkLiteral(key)
		}
	default:
		var line string
		if line, present, err = s.line(r.Header); err == nil && present {
			key, err = readKey(line, s.strict)
		}
	}
	if err == nil && present {
		err = s.legal(key)
	}
	if err != nil || !present {
		return "", false, err
	}
	return key, true, nil
}

// line is the only field line of the accepted names.
func (s *keySource) line(h http.Header) (line string, present bool, err error) {
	n := 0
	for _, name := range s.headers {
		lines := h[name]
		if n += len(lines); n > 1 {
			return "", false, refuse(keyMultiple, "The request holds more than one idempotency key.")
		}
		if len(lines) == 1 {
			line = lines[0]
		}
	}
	return line, n == 1, nil
}

func (s *keySource) extractParts(r *http.Request, body *payload) (key string, present bool, err error) {
	key, present, err = s.parts.read(r, body, s.min, s.max)
	if err != nil || !present || len(s.parts) > 1 {
		return key, present, err
	}
	_, only, _ := strings.Cut(key, ":")
	if err := s.form(only); err != nil {
		return "", false, err
	}
	return key, true, nil
}

// legal holds a key to length, profile and pattern.
func (s *keySource) legal(key string) error {
	if s.uuid && !uuidForm(key) {
		return s.form(key)
	}
	if err := checkLength(key, s.min, s.max); err != nil {
		return err
	}
	return s.form(key)
}

func (s *keySource) form(key string) error {
	if s.uuid && !uuidForm(key) {
		return refuse(keyMalformed, "The idempotency key must be a UUID: 8-4-4-4-12 hexadecimal digits.")
	}
	if s.pattern != nil && !s.pattern.MatchString(key) {
		return refuse(keyMalformed, "The idempotency key does not have the form that this operation asks for.")
	}
	return nil
}

// missing is the refusal of a request without a key, where one is required.
func (s *keySource) missing() error {
	return refuse(keyMissing, "This operation needs an idempotency key: send one in the "+s.text+", and the same one with every retry.")
}
