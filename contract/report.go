package contract

import (
	"path"
	"strings"
)

// SARIF writes findings as SARIF 2.1.0, which code hosts show at the lines of a document. version is that of the program.
func SARIF(findings []Finding, version string) []byte {
	var rules, results []*Node
	for _, r := range Rules() {
		rules = append(rules, object("id", r.ID, "shortDescription", object("text", r.Asks), "defaultConfiguration", object("level", string(r.Severity))))
	}
	for _, f := range findings {
		text := f.Message
		if f.Where != "" {
			text = f.Where + ": " + text
		}
		results = append(results, object("ruleId", f.Rule, "level", string(f.Severity), "message", object("text", text),
			"locations", []*Node{object("physicalLocation", object("artifactLocation", object("uri", path.Clean(strings.ReplaceAll(f.File, "\\", "/"))),
				"region", object("startLine", max(1, f.Line), "startColumn", max(1, f.Col))))}))
	}
	return JSON(object("$schema", "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs", []*Node{object(
		"tool", object("driver", object("name", "idempo", "informationUri", "https://github.com/idempo/idempo", "version", version, "rules", rules)),
		"results", results, "columnKind", "unicodeCodePoints")}))
}
