package config

import "github.com/idempo/idempo/contract"

// Contract says how documents are judged, and where the last report stands.
type Contract struct {
	Lint   map[string]contract.Severity // by rule; others have their own
	Report string                       // a JSON file; "": none
}

func contractField() field {
	severity := field{kind: word, words: []string{"error", "warning", "note", "off"}}
	var rules []string
	for _, r := range contract.Rules() {
		rules = append(rules, r.ID)
	}
	return field{name: "contract", kind: section, doc: "What is promised in documents, and how such documents are judged.", fields: []field{
		{name: "lint", kind: mapping, item: &severity, words: rules, sample: "{C07: off}", doc: "Severity of rules of idempo contract lint, by name, in place of their own."},
		{name: "report", kind: path, defDoc: "none", sample: "report.json", doc: "JSON report of the last check; the dashboard shows it beside what is declared."},
	}}
}

func decodeContract(v *value) Contract {
	c := Contract{Lint: map[string]contract.Severity{}, Report: v.at("report").text}
	for _, m := range v.at("lint").members {
		c.Lint[m.name] = contract.Severity(m.text)
	}
	return c
}
