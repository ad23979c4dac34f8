package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Markdown is the contract for people: what each endpoint promises, what each status means, and what a client does about it. Its order is
// that of paths, so that a change of one promise is a change of a few lines.
func (c *Contract) Markdown() []byte {
	b := &strings.Builder{}
	fmt.Fprintf(b, "# %s: what a retry does\n\n", cell(c.Title))
	c.overview(b)
	for _, e := range c.Endpoints {
		if e.Statement.group() == "keyed" {
			e.markdown(b)
		}
	}
	for _, s := range c.Consumers {
		s.markdown(b)
	}
	return []byte(b.String())
}

func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ") }

// overview lists every endpoint in its group.
func (c *Contract) overview(b *strings.Builder) {
	b.WriteString("## Endpoints\n\n| endpoint | group | operation or reason |\n|---|---|---|\n")
	for _, e := range c.Endpoints {
		s := e.Statement
		switch s.group() {
		case "keyed":
			fmt.Fprintf(b, "| %s | keyed | %s |\n", e.name(), cell(s.Operation))
		case "natural":
			fmt.Fprintf(b, "| %s | natural: twice is once | %s |\n", e.name(), cell(s.Natural.Reason))
		default:
			fmt.Fprintf(b, "| %s | not recognised: twice is twice | %s |\n", e.name(), cell(s.Reason))
		}
	}
	b.WriteString("\nGET, HEAD and OPTIONS change nothing and may always be repeated.\n")
}

func (e Endpoint) name() string {
	path := "`" + strings.TrimSpace(cmp.Or(e.Method, "any method")+" "+e.Path) + "`"
	if e.Subtree {
		path += " and below"
	}
	return path
}

func (e Endpoint) markdown(b *strings.Builder) {
	s := e.Statement
	fmt.Fprintf(b, "\n## %s %s\n\n| | |\n|---|---|\n", e.Method, e.Path)
	for _, f := range e.Facts() {
		fmt.Fprintf(b, "| %s | %s |\n", f[0], cell(f[1]))
	}
	if len(e.Refusals) > 0 {
		b.WriteString("\n| status | means | retry? | same key? |\n|---|---|---|---|\n| 2XX | done, now or before | no | – |\n")
		for _, r := range e.Refusals {
			meaning, retry, same := describe(r.Codes)
			fmt.Fprintf(b, "| %d | %s | %s | %s |\n", r.Status, cell(meaning), retry, same)
		}
		s.ownAnswers(b)
	}
	e.example(b)
}

// Facts are what is promised of a keyed endpoint, each a name and a sentence, in the order of a page; none of another endpoint.
func (e Endpoint) Facts() (out [][2]string) {
	s, k := e.Statement, e.Statement.Key
	if s.group() != "keyed" {
		return nil
	}
	row := func(name, text string) {
		if text != "" {
			out = append(out, [2]string{name, text})
		}
	}
	row("operation", "`"+s.Operation+"`")
	row("key", k.sentence())
	row("guard", guardText(s))
	row("deduplicated", dedupText(s))
	row("not deduplicated", "two different keys are two intents; what the service does outside this call"+mapText(s.Effects == "local", " and outside its database", ""))
	row("scope", "two requests have one key where they share "+strings.Join(s.KeyedBy, ", "))
	row("answer kept for", span(s.Retention))
	row("then refused for", span(s.Tombstone))
	row("after a crash", crashText(s))
	if s.Replayed != nil {
		row("given again", strings.Join(s.Replayed.Statuses, ", ")+markerText(s.Replayed.Marker))
		row("not kept", strings.Join(s.NotKept, ", ")+mapText(s.Effects == "outside", ": a 5XX of the service leaves the key in doubt, the others free it", ": the key is free again"))
	}
	if s.StaleResult == "current" {
		row("a repeat shows", "the resource as it is now")
	}
	return out
}

// ownAnswers are the rows of what the service itself answers.
func (s Statement) ownAnswers(b *strings.Builder) {
	if s.Replayed == nil {
		return
	}
	var notNow []string
	for _, status := range s.NotKept {
		if status[0] == '4' {
			notNow = append(notNow, status)
		}
	}
	if slices.Contains(s.Replayed.Statuses, "4XX") {
		b.WriteString("| 4XX of the service | refused for good; a repeat gets the same refusal | no | no |\n")
	}
	if len(notNow) > 0 {
		fmt.Fprintf(b, "| %s of the service | not now; nothing happened | yes | yes |\n", strings.Join(notNow, ", "))
	}
	if slices.Contains(s.NotKept, "5XX") {
		b.WriteString("| 5XX of the service | " + mapText(s.Effects == "local", "undone; nothing happened", "it may have happened: a repeat is told in doubt until that is settled") + " | yes | yes |\n")
	}
}

func mapText(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func (k *Key) sentence() string {
	t := k.In + " `" + k.Name + "`"
	t += mapText(k.Required != nil && *k.Required, ", required", ", optional: without it a repeat runs again")
	if k.MaxLength > 0 {
		t += fmt.Sprintf(", %d to %d bytes", k.MinLength, k.MaxLength)
	}
	if k.Format != "" && k.Format != "string" {
		t += ", " + k.Format
	}
	return t + mapText(k.Issued, ", issued by the service", "")
}

func guardText(s Statement) string {
	switch s.Guard {
	case "atomic":
		return "atomic: key, effect and answer commit together, or not at all"
	case "leased":
		return "leased: one started effect per key and lease; what nobody can prove is in doubt"
	case "upstream":
		return "upstream: the service behind recognises repeats itself"
	}
	return s.Guard
}

func dedupText(s Statement) string {
	if s.Mismatch == nil {
		return mapText(s.Guard == "upstream", "as the service behind says", "every request under one key, whatever it asks for")
	}
	t := "requests under one key that agree in " + strings.Join(s.Mismatch.Covers, ", ")
	if len(s.Mismatch.Ignores) > 0 {
		t += ", apart from " + strings.Join(s.Mismatch.Ignores, ", ")
	}
	return t
}

func crashText(s Statement) string {
	switch s.OnCrash {
	case "rollback":
		return "everything rolls back, and the retry runs"
	case "hold":
		return "in doubt until a person, or a late answer, settles it; never run again blindly"
	case "probe":
		return "in doubt until the service is asked whether it happened; then done, or free to run"
	case "rerun":
		return "sent again with the same key, which the far side honours"
	}
	return s.OnCrash
}

func markerText(m *Marker) string {
	if m == nil {
		return ""
	}
	return "; a repeat carries `" + m.Header + ": " + m.Value + "`"
}

// span is a duration for people.
func span(iso string) string {
	d, err := ParseDuration(iso)
	switch {
	case iso == "" || err != nil:
		return iso
	case iso == forever:
		return "ever"
	case d >= 2*day && d%day == 0:
		return fmt.Sprintf("%d days (%s)", d/day, iso)
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h (%s)", d/time.Hour, iso)
	}
	return d.String() + " (" + iso + ")"
}

// example is one call and its repeat.
func (e Endpoint) example(b *strings.Builder) {
	k := e.Statement.Key
	if k.In != "header" && k.In != "query" {
		return
	}
	path := wildcard.ReplaceAllStringFunc(e.Path, func(w string) string { return strings.ToUpper(strings.Trim(w, "{}")) })
	query, header := "", ""
	if k.In == "query" {
		query = "?" + k.Name + "=$KEY"
	} else {
		header = " -H \"" + k.Name + ": $KEY\""
	}
	made := "$(uuidgen)   # once per intent; the same on every retry"
	if k.Issued {
		made = "…   # as the service issued it; the same on every retry"
	}
	fmt.Fprintf(b, "\n```sh\nKEY=%s\ncurl -X %s%s -H 'Content-Type: application/json' -d @body.json \"$BASE%s%s\"\n```\n", made, e.Method, header, path, query)
}

func (s Consumer) markdown(b *strings.Builder) {
	m := s.Message
	fmt.Fprintf(b, "\n## Messages on %s\n\n| | |\n|---|---|\n", cell(s.Channel))
	rows := [][2]string{{"consumer", "`" + s.Name + "`"}, {"guard", guardText(Statement{Guard: m.Guard})}, {"scope", strings.Join(m.KeyedBy, ", ")}, {"recognised for", span(m.Retention)},
		{"another body under a known identity", m.SameIDOtherBody}, {"no identity", m.MissingID}, {"order", m.Order + mapText(m.OrderKey != "", ", within "+m.OrderKey, "")}, {"dead letter", m.DeadLetter}}
	if m.ID != nil {
		rows = slices.Insert(rows, 1, [2]string{"identity", m.ID.In + " `" + m.ID.Name + "`"})
	}
	if m.Attempts > 0 {
		rows = append(rows, [2]string{"attempts", fmt.Sprint(m.Attempts)})
	}
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(b, "| %s | %s |\n", r[0], cell(r[1]))
		}
	}
}
