package docblock

import (
	"regexp"
	"strings"
)

// Matches compares what a command printed with what the page shows. In the page, … stands for any text within a line,
// and a line of nothing but … for any number of lines. Space at the ends of lines does not count.
func Matches(shown, printed string) bool {
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for line := range strings.Lines(tidy(shown)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "…" {
			pattern.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern.WriteString(strings.Join(parts, `[^\n]*`) + `\n`)
	}
	pattern.WriteString(`\z`)
	return regexp.MustCompile(pattern.String()).MatchString(tidy(printed))
}

// tidy drops space at the ends of lines and empty lines at the end, and ends in one newline.
func tidy(text string) string {
	lines := strings.Split(strings.TrimRight(text, " \t\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	if len(lines) == 1 && lines[0] == "" {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}
