package config

import (
	"encoding/json"
	"strings"
)

// JSONSchema returns the schema of a configuration file as JSON Schema 2020-12, for editors.
func JSONSchema() []byte {
	root := objectOf(schema())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "idempo configuration file"
	root["$defs"] = map[string]any{
		"outside": map[string]any{
			"description":          "A value from the environment or from a file.",
			"type":                 "object",
			"properties":           map[string]any{"env": map[string]any{"type": "string"}, "file": map[string]any{"type": "string"}},
			"additionalProperties": false, "minProperties": 1, "maxProperties": 1,
		},
		"inline": map[string]any{
			"description": "Text with a value from the environment or from a file in it.",
			"type":        "string", "pattern": `\$\{`,
		},
	}
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // nothing but maps, lists and text
	}
	return append(b, '\n')
}

func objectOf(f *field) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range f.fields {
		c := &f.fields[i]
		properties[c.name] = schemaOf(c)
		if c.required {
			required = append(required, c.name)
		}
	}
	o := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func schemaOf(f *field) map[string]any {
	var s map[string]any
	switch {
	case f.later != "":
		s = map[string]any{"not": map[string]any{}}
	case f.kind == section:
		if s = objectOf(f); f.words != nil {
			s["type"], s["pattern"] = []any{"object", "string"}, "^("+strings.Join(f.words, "|")+")$" // a pattern is about text alone
		}
	case f.kind == mapping:
		s = map[string]any{"type": "object", "additionalProperties": schemaOf(f.item)}
		if f.words != nil {
			s["propertyNames"] = map[string]any{"enum": f.words}
		}
	case f.kind == list:
		s = map[string]any{"type": "array", "items": schemaOf(f.item)}
	default:
		s = map[string]any{"anyOf": []any{f.scalarSchema(), map[string]any{"$ref": "#/$defs/outside"}, map[string]any{"$ref": "#/$defs/inline"}}}
	}
	doc := f.doc
	switch {
	case f.later != "":
		doc = strings.TrimSpace(doc + " Not in this version: " + f.later + ".")
	case f.def != "":
		s["default"] = f.defaultJSON()
	case f.defDoc != "":
		doc += " Default: " + f.defDoc + "."
	}
	if doc != "" {
		s["description"] = doc
	}
	return s
}

func (f *field) scalarSchema() map[string]any {
	switch f.kind {
	case whole:
		s := map[string]any{"type": "integer"}
		if f.min != "" {
			s["minimum"] = json.Number(f.min)
		}
		if f.max != "" {
			s["maximum"] = json.Number(f.max)
		}
		return s
	case truth:
		return map[string]any{"type": "boolean"}
	case duration:
		pattern := `^([0-9]+(ms|s|m|h|d|w))+$`
		if f.forever {
			pattern = `^(forever|([0-9]+(ms|s|m|h|d|w))+)$`
		}
		return map[string]any{"type": "string", "pattern": pattern}
	case size:
		return map[string]any{"type": "string", "pattern": `^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TB|TiB)$`}
	case word:
		return map[string]any{"enum": f.words}
	case anything:
		return map[string]any{"type": []string{"string", "number", "boolean", "null"}}
	}
	return map[string]any{"type": "string"}
}

func (f *field) defaultJSON() any {
	switch {
	case f.kind == whole:
		return json.Number(f.def)
	case f.kind == truth:
		return f.def == "true"
	case f.def == `""`:
		return ""
	}
	return f.def
}
