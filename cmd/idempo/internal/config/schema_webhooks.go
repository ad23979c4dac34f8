package config

import (
	"errors"
	"strings"
	"time"
)

func webhooksField() field {
	source, provider := sourceField(), providerField()
	return field{name: "webhooks", kind: section, doc: "Callbacks that providers send: verified, stored, answered, and forwarded once.", fields: []field{
		{name: "path", kind: text, def: "/hooks", check: checkHookPath, doc: "They come to POST PATH/SOURCE on the gateway listener."},
		{name: "workers", kind: whole, def: "8", min: "1", max: "1000", doc: "Events of one source that are worked on at once."},
		{name: "max_in_flight", kind: whole, def: "512", min: "1", max: "100000", doc: "Requests worked on at once; more are answered 503."},
		{name: "max_buffered", kind: size, def: "64MiB", min: "1KiB", doc: "Bytes of bodies held at once; more are answered 503."},
		{name: "read_timeout", kind: duration, def: "10s", min: "1ms", max: "10m", doc: "For a whole body; then 408."},
		{name: "answer_budget", kind: duration, def: "2s", min: "1ms", max: "1m", doc: "For storing; then 503, and the provider comes again."},
		{name: "sources", kind: mapping, item: &source, doc: "The endpoints, by a name of your own: 1 to 63 of a-z 0-9 - _."},
		{name: "providers", kind: mapping, item: &provider, doc: "Schemes of your own, by name, besides those of idempo webhooks providers."},
	}}
}

func hookSecrets(name, doc string, required bool) field {
	item := &field{kind: section, fields: []field{
		{name: "id", kind: text, required: true, sample: `"2026a"`, check: checkKeyID, doc: "Name of the secret: logs say which one verified."},
		{name: "value", kind: text, secret: true, required: true, sample: "{file: /run/secrets/hook}", doc: "As the provider shows it. A changed file counts within 5 s."},
		{name: "until", kind: text, defDoc: "for ever", sample: `"2026-12-31T00:00:00Z"`, check: checkMoment, doc: "From then on it counts for nothing."},
	}}
	return field{name: name, kind: list, item: item, required: required, doc: doc}
}

func sourceField() field {
	word1 := func(name, def, doc string, words ...string) field {
		return field{name: name, kind: word, def: def, words: words, doc: doc}
	}
	text1, network, port := field{kind: text}, field{kind: text, check: checkNetwork}, field{kind: whole, min: "1", max: "65535"}
	return field{kind: section, fields: []field{
		{name: "provider", kind: text, required: true, sample: "github", doc: "A name of idempo webhooks providers, or of webhooks.providers."},
		{name: "tenant", kind: text, def: "default", doc: "Who owns what arrives."},
		hookSecrets("secrets", "Each is tried; several while one replaces another.", false),
		{name: "public_url", kind: text, check: checkHTTP, sample: `"https://hooks.example.com/hooks/gh"`, doc: "The URL as the provider was given it, where it signs it."},
		{name: "verify_token", kind: text, secret: true, sample: "{env: META_VERIFY}", doc: "What Meta repeats when it asks whether the endpoint is yours."},
		{name: "topics", kind: list, item: &text1, defDoc: "none", sample: `["arn:aws:sns:us-east-1:123456789012:orders"]`, doc: "ARNs from which SNS may send."},
		{name: "types", kind: list, item: &text1, defDoc: "all", sample: "[push]", doc: "Types of events that are forwarded; others are stored and skipped."},
		{name: "min_version", kind: text, defDoc: "all", sample: "v3", doc: "Oldest signature version of HubSpot: v1, v2 or v3."},
		{name: "tolerance", kind: duration, defDoc: "the provider's", sample: "5m", min: "1s", max: "365d", doc: "How far a signed time may be off."},
		word1("missing_id", "park", "What becomes of an event without an id: park it for a person, know it by its content, refuse it.", "park", "content", "refuse"),
		{name: "max_body", kind: size, defDoc: "the provider's, else 1MiB", sample: "1MiB", min: "1B", max: "64MiB", doc: "Largest body."},
		{name: "max_items", kind: whole, def: "5000", min: "1", max: "100000", doc: "Events in one body; more are parked as one."},
		{name: "retention", kind: duration, defDoc: "the provider's, else 35d", sample: "35d", min: "1m", doc: "How long keys are kept; tombstones ten times that."},
		{name: "body_retention", kind: duration, def: "30d", min: "1m", doc: "How long bodies of finished events are kept; of those that wait for a person, until then."},
		{name: "same_bytes", kind: word, defDoc: "the provider's, else park", sample: "run", words: []string{"park", "run"}, doc: "What becomes of a new id over known bytes where no code covers the id."},
		{name: "allow_short_window", kind: truth, def: "false", doc: "Start although the provider can deliver later than that."},
		{name: "refuse_status", kind: whole, def: "401", min: "400", max: "499", doc: "Answer to what is not verified."},
		{name: "order", kind: section, doc: "How events of one lane follow each other.", fields: []field{
			word1("mode", "serial", "none, or serial: one at a time per lane, in the order of arrival.", "none", "serial"),
			word1("on_dead", "block", "What a dead event does to its lane.", "block", "continue"),
		}},
		{name: "retry", kind: section, doc: "How a failed event is tried again, with full jitter.", fields: []field{
			{name: "attempts", kind: whole, def: "12", min: "1", max: "1000", doc: "Then it is dead and waits for a person."},
			{name: "first", kind: duration, def: "1s", min: "1ms", doc: "First pause; doubles."},
			{name: "max", kind: duration, def: "2h", min: "1ms", doc: "Longest pause."},
			{name: "max_age", kind: duration, def: "24h", min: "1s", doc: "So long after its first failure it is dead, whatever the attempts."},
		}},
		{name: "forward", kind: section, required: true, words: []string{"none"}, doc: "Where events go. The word none in its place keeps them stored until it says where.", fields: []field{
			{name: "url", kind: text, required: true, check: checkHTTP, sample: `"http://127.0.0.1:9000/in"`, doc: "Each event is sent here with POST and its exact bytes."},
			{name: "target_dedups", kind: truth, required: true, sample: "true", doc: "The target has one effect for one Idempotency-Key: what got no answer is sent again. false: it is in doubt and waits for a person."},
			{name: "allow", kind: list, item: &network, defDoc: "none", sample: `["127.0.0.1/32"]`, doc: "Networks besides public ones. Cloud metadata never."},
			{name: "ports", kind: list, item: &port, defDoc: "[80, 443]", sample: "[9000]", doc: "Ports."},
			{name: "timeout", kind: duration, def: "30s", min: "1ms", max: "10m", doc: "For one attempt."},
			{name: "breaker", kind: whole, def: "10", min: "1", max: "100000", doc: "After so many failures in a row the target rests; what waits uses up no attempt."},
			{name: "breaker_pause", kind: duration, def: "30s", min: "1ms", max: "10m", doc: "For how long at first; it doubles up to 10m."},
			{name: "concurrency", kind: whole, def: "8", min: "1", max: "1000", doc: "Attempts at once."},
			hookSecrets("signing", "Standard Webhooks secrets; each active one signs what is sent.", false),
		}},
	}}
}

// partFields are the places of a value in a delivery.
func partFields() []field {
	return []field{
		{name: "header", kind: text, check: checkHeader, sample: "X-Crm-Id", doc: "A header."},
		{name: "json", kind: text, check: checkPointer, sample: "/id", doc: "A JSON pointer; it starts at an item where there are items."},
		{name: "form", kind: text, sample: "id", doc: "A field of a form."},
	}
}

func providerField() field {
	pointer, part := field{kind: text, check: checkPointer}, field{kind: section, fields: partFields()}
	return field{kind: section, fields: []field{
		{name: "header", kind: text, required: true, check: checkHeader, sample: "X-Crm-Signature", doc: "Where the code is."},
		{name: "prefix", kind: text, sample: `"sha256="`, doc: "What stands before it, exactly."},
		{name: "alg", kind: word, def: "sha256", words: []string{"sha1", "sha256", "sha512"}, doc: "Hash of the HMAC."},
		{name: "encoding", kind: word, def: "hex", words: []string{"hex", "base64", "base64url"}, doc: "How the code is written: hex, padded base64, unpadded base64url."},
		{name: "secret", kind: word, def: "text", words: []string{"text", "base64", "hex"}, doc: "How the secret becomes a key."},
		{name: "content", kind: text, def: `"{body}"`, doc: "What is signed: {body} {url} {method} {ts} {h:Name} and text between them."},
		{name: "body_unsigned", kind: truth, def: "false", doc: "The code does not cover the body, and that is known."},
		{name: "list", kind: section, doc: "The header is a list of tag=code.", fields: []field{
			{name: "separator", kind: text, required: true, sample: `","`, doc: "Between two entries."},
			{name: "tag", kind: text, required: true, sample: "v1", doc: "Of codes that count."},
			{name: "time", kind: text, sample: "t", doc: "Of the signed time, where the list has it; {ts} in content."},
		}},
		{name: "time", kind: section, doc: "A signed time.", fields: []field{
			{name: "header", kind: text, check: checkHeader, sample: "X-Crm-Time", doc: "In a header; content must hold it."},
			{name: "json", kind: text, check: checkPointer, sample: "/sent_at", doc: "In the body."},
			{name: "unit", kind: word, def: "s", words: []string{"s", "ms", "rfc3339"}, doc: "How it is written."},
			{name: "tolerance", kind: duration, defDoc: "not judged", sample: "5m", min: "1s", doc: "How far it may be off."},
		}},
		{name: "id", kind: list, item: &part, doc: "The delivery id: its parts together."},
		{name: "id_signed", kind: truth, def: "false", doc: "The code covers the id."},
		{name: "items", kind: text, check: checkItems, defDoc: "the body is one event", sample: "/events", doc: "JSON pointer of the array of events; * stands for every element on the way."},
		{name: "lane", kind: section, fields: partFields(), doc: "The entity whose events keep an order."},
		{name: "version", kind: section, fields: partFields(), doc: "Its version."},
		{name: "type", kind: section, fields: partFields(), doc: "The type of an event."},
		{name: "mask", kind: list, item: &pointer, defDoc: "none", sample: "[/attempt]", doc: "Members that may differ between attempts."},
		{name: "success", kind: section, doc: "The answer that the provider wants.", fields: []field{
			{name: "status", kind: whole, def: "200", min: "200", max: "299", doc: "Its status."},
			{name: "body", kind: text, def: `""`, doc: "Its body."},
			{name: "content_type", kind: text, sample: "text/plain", doc: "Of the body."},
		}},
	}}
}

func checkHookPath(s string) error {
	if !strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") || strings.ContainsAny(s, "{}?# %") {
		return errors.New("not a path: it begins with / and does not end with it, as in /hooks")
	}
	return nil
}

func checkItems(s string) error {
	if s != "" && !strings.HasPrefix(s, "/") {
		return errors.New("not a JSON pointer: it is empty or begins with /, as in /events")
	}
	return nil
}

func checkMoment(s string) error {
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return errors.New("not a moment: write it as 2026-12-31T00:00:00Z")
	}
	return nil
}
