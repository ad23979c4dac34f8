package inbox

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// event is what a message says of itself by CloudEvents attributes.
type event struct {
	present                                                             bool
	id, source, kind, time, partitionkey, sequence, tenant, specversion string
	idGiven                                                             bool   // maybe blank
	bad                                                                 string // why it cannot be read; "": it can
	missing                                                             bool   // an identity attribute is blank or has two values
}

// binaryPrefixes lead the attributes in headers: Kafka, HTTP and NATS, AMQP 1.0, AMQP where a colon cannot be.
func binaryPrefixes() [4]string { return [4]string{"ce_", "ce-", "cloudevents:", "cloudevents_"} }

// readEvent finds CloudEvents attributes: structured JSON by content type, else binary in the headers.
func readEvent(m Message) event {
	kind, _ := m.Header("content-type")
	kind, _, _ = strings.Cut(strings.ToLower(kind), ";")
	switch kind = strings.TrimSpace(kind); {
	case strings.HasPrefix(kind, "application/cloudevents-batch"):
		return event{present: true, bad: "a batch of CloudEvents is not one message"}
	case kind == "application/cloudevents+json":
		return structured(m.Body)
	case strings.HasPrefix(kind, "application/cloudevents+"):
		return event{present: true, bad: "this format of CloudEvents is not known"}
	}
	return inHeaders(m.Headers)
}

func inHeaders(headers [][2]string) (e event) {
	seen := map[string]string{}
	for _, h := range headers {
		name, ok := attribute(h[0])
		if !ok {
			continue
		}
		e.present = true
		if old, twice := seen[name]; twice && old != h[1] && (name == "id" || name == "source") {
			e.missing = true
		}
		if _, twice := seen[name]; !twice {
			seen[name] = h[1]
		}
	}
	if !e.present {
		return e
	}
	_, e.idGiven = seen["id"]
	e.id, e.source, e.kind, e.time = seen["id"], seen["source"], seen["type"], seen["time"]
	e.partitionkey, e.sequence, e.tenant = seen["partitionkey"], seen["sequence"], seen["tenant"]
	if v, given := seen["specversion"]; given && v != "1.0" {
		e.bad = "specversion is not 1.0"
	}
	if source, given := seen["source"]; e.idGiven && blank(e.id) || given && blank(source) {
		e.missing = true
	}
	return e
}

// attribute returns the attribute that a header carries.
func attribute(header string) (string, bool) {
	lower := strings.ToLower(header)
	for _, p := range binaryPrefixes() {
		if name, ok := strings.CutPrefix(lower, p); ok && name != "" {
			return name, true
		}
	}
	return "", false
}

// structured reads an event in JSON format. Its body stays as it came.
func structured(body []byte) (e event) {
	e.present = true
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		e.bad = "no JSON object"
		return e
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			e.bad = "broken JSON"
			return e
		}
		if field := e.field(name); field != nil {
			var v any
			if err := dec.Decode(&v); err != nil {
				e.bad = "broken JSON"
				return e
			}
			text, isText := scalar(v)
			if !isText {
				e.bad = "attribute " + name + " is no string"
				return e
			}
			if seen[name] && text != *field && (name == "id" || name == "source") {
				e.missing = true
			}
			*field, seen[name] = text, true
			continue
		}
		var skipped json.RawMessage
		if err := dec.Decode(&skipped); err != nil {
			e.bad = "broken JSON"
			return e
		}
	}
	if _, err := dec.Token(); err != nil || dec.More() {
		e.bad = "broken JSON"
	} else if e.specversion != "1.0" {
		e.bad = "specversion is not 1.0"
	}
	e.idGiven = seen["id"]
	if blank(e.id) || blank(e.source) {
		e.missing = true
	}
	return e
}

// field is where an attribute goes, nil for those that say nothing here.
func (e *event) field(name string) *string {
	switch name {
	case "id":
		return &e.id
	case "source":
		return &e.source
	case "type":
		return &e.kind
	case "time":
		return &e.time
	case "partitionkey":
		return &e.partitionkey
	case "sequence":
		return &e.sequence
	case "tenant":
		return &e.tenant
	case "specversion":
		return &e.specversion
	}
	return nil
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// at is the event's time, zero if it has none or one that cannot be read.
func (e event) at() time.Time {
	t, err := time.Parse(time.RFC3339Nano, e.time)
	if err != nil {
		return time.Time{}
	}
	return t
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
