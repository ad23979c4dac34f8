package outbox

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxText    = 255      // type, tenant, source, content type
	maxTopic   = 200      //
	maxKey     = 512      //
	maxHeaders = 16 << 10 // names and values together
	maxKeys    = 1000     // of one Append under KeyLockAdvisory
)

// check says which rule the event breaks, or nil. Defaults are filled in already.
func (e *Event) check(maxPayload int) error {
	u, ok := parseUUID(e.ID)
	switch {
	case !ok:
		return refused("id %q: must be a UUID, 8-4-4-4-12 hexadecimal digits", short(e.ID))
	case u == [16]byte{}:
		return refused("id: must not be the nil UUID")
	case e.Topic == "":
		return refused("topic: is required")
	case len(e.Topic) > maxTopic:
		return refused("topic: %d bytes, at most %d are allowed", len(e.Topic), maxTopic)
	case strings.ContainsFunc(e.Topic, notTopic):
		return refused("topic %q: only letters, digits, . _ - are allowed", short(e.Topic))
	case strings.Contains("."+e.Topic+".", ".."):
		return refused("topic %q: has an empty part between dots", short(e.Topic))
	case len(e.Key) > maxKey:
		return refused("key: %d bytes, at most %d are allowed", len(e.Key), maxKey)
	case !utf8.ValidString(e.Key) || strings.ContainsFunc(e.Key, unicode.IsControl):
		return refused("key: must be UTF-8 without control characters")
	}
	for _, f := range []struct {
		name, value string
		required    bool
	}{{"type", e.Type, true}, {"tenant", e.Tenant, true}, {"source", e.Source, true}, {"content type", e.ContentType, false}} {
		switch {
		case f.required && f.value == "":
			return refused("%s: is required", f.name)
		case len(f.value) > maxText:
			return refused("%s: %d bytes, at most %d are allowed", f.name, len(f.value), maxText)
		case !utf8.ValidString(f.value) || strings.ContainsFunc(f.value, unicode.IsControl):
			return refused("%s: must be UTF-8 without control characters", f.name)
		}
	}
	if len(e.Payload) > maxPayload {
		return fmt.Errorf("%w: append: payload of %d bytes, at most %d are allowed; raise MaxPayload (at most 64 MiB) if the broker takes it", ErrTooLarge, len(e.Payload), maxPayload)
	}
	return checkHeaders(e.Headers)
}

func notTopic(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
}

// checkHeaders names the header that breaks a rule; its value is never told.
func checkHeaders(headers [][2]string) error {
	size := 0
	for _, h := range headers {
		name, value := h[0], h[1]
		size += len(name) + len(value)
		switch {
		case reserved(name):
			return fmt.Errorf("%w: append: header %s: the name is reserved", ErrHeader, short(name))
		case name == "" || strings.ContainsFunc(name, notToken):
			return fmt.Errorf("%w: append: header %q: a name is an HTTP token", ErrHeader, short(name))
		case strings.ContainsAny(value, "\r\n\x00"):
			return fmt.Errorf("%w: append: header %s: its value must not have CR, LF or NUL", ErrHeader, short(name))
		case !utf8.ValidString(value):
			return fmt.Errorf("%w: append: header %s: its value must be UTF-8", ErrHeader, short(name))
		}
	}
	if size > maxHeaders {
		return fmt.Errorf("%w: append: headers have %d bytes together, at most %d are allowed", ErrHeader, size, maxHeaders)
	}
	return nil
}

// notToken says what RFC 9110, section 5.6.2, does not allow in a token.
func notToken(r rune) bool {
	return r > 0x7e || r <= ' ' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// reserved names are written by idempo and its brokers.
func reserved(name string) bool {
	name = strings.ToLower(name)
	for _, prefix := range []string{"ce_", "ce-", "cloudevents", "idempo-", "nats-", "webhook-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "idempotency-key", "traceparent", "tracestate", "correlation-id", "content-type", "x-deduplication-header":
		return true
	}
	return false
}

func refused(format string, a ...any) error {
	return fmt.Errorf("%w: append: "+format, append([]any{ErrEvent}, a...)...)
}

// short is s for a message.
func short(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:57], "") + "..."
}
