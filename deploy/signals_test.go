package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/idempo/idempo/deploy"
)

var update = flag.Bool("update", false, "rewrite grafana/idempo.json")

// tool is the path of a program that a test needs.
func tool(t *testing.T, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	text := "no " + name + ": apt-get install " + install
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
	panic("unreachable")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// exported are the metrics of contrib/prometheus with their labels, from its golden file.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for line := range strings.Lines(read(t, "../contrib/prometheus/testdata/metrics.golden")) {
		f := strings.Fields(line)
		all[f[0]] = f[2:]
		if f[1] == "histogram" {
			all[f[0]] = append(f[2:], "le")
		}
	}
	if len(all) < 50 {
		t.Fatalf("%d metrics", len(all))
	}
	return all
}

// selector finds metrics in an expression, with what stands in braces.
func selector() *regexp.Regexp { return regexp.MustCompile(`\b(idempo_[a-z_]+)(\{[^}]*\})?`) }

func grouping() *regexp.Regexp { return regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`) }

func matcher() *regexp.Regexp { return regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`) }

// names checks that an expression names only metrics and labels that are exported, and returns the metrics.
func names(t *testing.T, where, expr string, all map[string][]string) (found []string) {
	t.Helper()
	labels := map[string]bool{}
	for _, m := range selector().FindAllStringSubmatch(expr, -1) {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && all[base] != nil {
				name = base
			}
		}
		has, ok := all[name]
		if !ok {
			t.Errorf("%s names %s, which is not exported", where, name)
			continue
		}
		found = append(found, name)
		for _, l := range has {
			labels[l] = true
		}
		for _, l := range matcher().FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(has, l[1]) {
				t.Errorf("%s asks %s for label %s; it has %v", where, name, l[1], has)
			}
		}
	}
	for _, m := range grouping().FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); !labels[l] {
				t.Errorf("%s groups by %q, which none of its metrics has", where, l)
			}
		}
	}
	return found
}

// alert is one rule, as far as these tests look.
type alert struct{ name, expr, text string }

func alerts(t *testing.T) (out []alert) {
	t.Helper()
	for i, part := range strings.Split(read(t, "prometheus/rules.yml"), "      - alert: ") {
		if i == 0 {
			continue
		}
		name, rest, _ := strings.Cut(part, "\n")
		_, expr, _ := strings.Cut(rest, "expr: |-\n")
		expr, _, _ = strings.Cut(expr, "\n        for:")
		out = append(out, alert{name, expr, part})
	}
	return out
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	all := alerts(t)
	t.Run("[operations/M13] promtool accepts the rules, and each alert fires and is silent at its border", func(t *testing.T) {
		t.Parallel()
		promtool := tool(t, "promtool", "prometheus")
		var tests strings.Builder
		for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}, {"test", "rules", "rules_days_test.yml"}} {
			cmd := exec.CommandContext(t.Context(), promtool, args...)
			cmd.Dir = "prometheus"
			if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("SUCCESS")) {
				t.Errorf("promtool %v: %v\n%s", args, err, out)
			}
			if args[0] == "test" {
				tests.WriteString(read(t, "prometheus/"+args[2]))
			}
		}
		if len(all) < 17 {
			t.Errorf("%d alerts", len(all))
		}
		for _, a := range all {
			fires, silent := 0, 0
			for _, one := range strings.Split(tests.String(), "  - name: ")[1:] {
				if !strings.Contains(one, "alertname: "+a.name+"\n") {
					continue
				}
				if strings.Contains(one, "exp_alerts: []") {
					silent++
				} else {
					fires++
				}
			}
			if fires == 0 || silent == 0 {
				t.Errorf("%s: %d tests in which it fires, %d in which it is silent", a.name, fires, silent)
			}
		}
	})
	t.Run("an alert names only metrics and labels that are exported", func(t *testing.T) {
		t.Parallel()
		metrics := exported(t)
		for _, a := range all {
			if len(names(t, a.name, a.expr, metrics)) == 0 {
				t.Errorf("%s asks for nothing", a.name)
			}
		}
	})
	t.Run("store-wide gauges are never summed", func(t *testing.T) {
		t.Parallel()
		wide := regexp.MustCompile(`(?:sum|avg)[^(]*\((?:idempo_in_doubt|idempo_pending_oldest|idempo_records|idempo_stored_bytes|idempo_purge_lag|idempo_outbox_(?:oldest|dead|pending|horizon))`)
		for _, a := range all {
			if wide.MatchString(a.expr) {
				t.Errorf("%s: %s", a.name, a.expr)
			}
		}
		b, err := deploy.Grafana()
		if err != nil || wide.Match(b) {
			t.Errorf("%v %s", err, wide.Find(b))
		}
	})
	t.Run("each alert has severity, summary, and a runbook whose commands exist", func(t *testing.T) {
		t.Parallel()
		commands := read(t, "../docs/guides/commands.md")
		pages, err := filepath.Glob("../docs/runbooks/Idempo*.md")
		if err != nil || len(pages) != len(all) {
			t.Errorf("%d runbooks, %d alerts, %v", len(pages), len(all), err)
		}
		for _, a := range all {
			for _, want := range []string{"severity: ", "summary: ", "docs/runbooks/" + a.name + ".md"} {
				if !strings.Contains(a.text, want) {
					t.Errorf("%s has no %s", a.name, want)
				}
			}
			page := read(t, "../docs/runbooks/"+a.name+".md")
			lines := regexp.MustCompile(`(?m)^idempo .*$|`+"`idempo [^`]*`").FindAllString(page, -1)
			if len(lines) == 0 {
				t.Errorf("%s: the runbook has no command", a.name)
			}
			for _, line := range lines {
				checkCommand(t, a.name, strings.Trim(line, "`"), commands)
			}
		}
	})
}

// checkCommand holds a command line against the table of commands.
func checkCommand(t *testing.T, where, line, commands string) {
	t.Helper()
	words := strings.Fields(line)
	section, ok := "", false
	for n := min(3, len(words)); n >= 2 && !ok; n-- {
		_, section, ok = strings.Cut(commands, "\n## "+strings.Join(words[:n], " ")+"\n")
	}
	if !ok {
		t.Errorf("%s: there is no command %q", where, line)
		return
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, w := range words {
		if flag, _, _ := strings.Cut(w, "="); strings.HasPrefix(flag, "--") && !strings.Contains(section, flag) {
			t.Errorf("%s: %q: the command has no %s", where, line, flag)
		}
	}
}

func TestGrafana(t *testing.T) {
	t.Parallel()
	const file = "grafana/idempo.json"
	made, err := deploy.Grafana()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	type target struct{ Expr, LegendFormat, RefID string }
	type panel struct {
		ID          int
		Type, Title string
		Targets     []target
		GridPos     struct{ X, Y, W, H int }
	}
	var board struct {
		Title, UID    string
		SchemaVersion int
		Panels        []panel
		Templating    struct{ List []struct{ Name, Type string } }
	}
	if err := json.Unmarshal(made, &board); err != nil {
		t.Fatal(err)
	}
	t.Run("what is checked in is what is made", func(t *testing.T) {
		t.Parallel()
		if got := read(t, file); got != string(made) {
			t.Error("go test ./deploy -run Grafana -update")
		}
	})
	t.Run("panels name only what is exported, and every metric has one", func(t *testing.T) {
		t.Parallel()
		metrics := exported(t)
		left := maps.Clone(metrics)
		for _, p := range board.Panels {
			for _, a := range p.Targets {
				for _, name := range names(t, p.Title, a.Expr, metrics) {
					delete(left, name)
				}
				for _, l := range regexp.MustCompile(`\{\{([a-z_]+)\}\}`).FindAllStringSubmatch(a.LegendFormat, -1) {
					if !regexp.MustCompile(`by \([^)]*\b` + l[1] + `\b`).MatchString(a.Expr) {
						t.Errorf("%s: the legend has %s, which %s does not", p.Title, l[1], a.Expr)
					}
				}
			}
		}
		if len(left) > 0 {
			t.Errorf("without a panel: %v", slices.Sorted(maps.Keys(left)))
		}
	})
	t.Run("no panel covers another, and ids and titles are told apart", func(t *testing.T) {
		t.Parallel()
		taken, ids, titles := map[[2]int]string{}, map[int]bool{}, map[string]bool{}
		for _, p := range board.Panels {
			if ids[p.ID] || titles[p.Title] || p.Title == "" || p.Type == "" || p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("panel %d %q", p.ID, p.Title)
			}
			ids[p.ID], titles[p.Title] = true, true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%q stands on %q at %d, %d", p.Title, other, x, y)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
		if board.UID != "idempo" || board.SchemaVersion == 0 || len(board.Templating.List) != 2 {
			t.Errorf("%+v", board.Templating)
		}
	})
	t.Run("every expression is one that Prometheus reads", func(t *testing.T) {
		t.Parallel()
		promtool := tool(t, "promtool", "prometheus")
		var rules strings.Builder
		rules.WriteString("groups:\n  - name: panels\n    rules:\n")
		n := 0
		for _, p := range board.Panels {
			for _, a := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h", "$operation", ".*").Replace(a.Expr)
				fmt.Fprintf(&rules, "      - record: panel:%d\n        expr: |-\n          %s\n", n, expr)
				n++
			}
		}
		path := filepath.Join(t.TempDir(), "panels.yml")
		if err := os.WriteFile(path, []byte(rules.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil || n < 60 {
			t.Errorf("%d expressions: %v\n%s", n, err, out)
		}
	})
}
