package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/operator"
)

// reconcileFlags say what is compared with what.
type reconcileFlags struct {
	since, until, file, format string
	probe, all                 bool
}

func (a *app) reconcileCommand() *cobra.Command {
	var r reconcileFlags
	c := &cobra.Command{
		Use: "reconcile OPERATION", Short: "compare finished and doubtful keys with what the outside says",
		Long: "Compare the completed, failed and doubtful keys of an operation with what happened outside, as its probe says or an export " +
			"lists. The export is CSV with a heading: a column key_ref, or resource (type:id), names what happened; each row happened once. " +
			"It writes nothing; each difference comes with the command that settles it.",
		Example:     "idempo reconcile pay --since 24h --file bank.csv\nidempo reconcile gateway.pay --since 7d --until 1h --probe --format json",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		Args:        cobra.ExactArgs(1),
		RunE:        func(c *cobra.Command, args []string) error { return a.reconcile(c, r, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&r.since, "since", "", "changed at most this `long` ago")
	f.StringVar(&r.until, "until", "", "changed at least this `long` ago")
	f.BoolVar(&r.probe, "probe", false, "ask the operation's probe about each key")
	f.StringVar(&r.file, "file", "", "CSV `export` of what happened outside")
	f.StringVar(&r.format, "format", "text", "`form` of the report: text, json (an object per line) or csv")
	f.BoolVar(&r.all, "all", false, "report what agrees as well")
	a.storeFlags(c)
	return c
}

func (a *app) reconcile(c *cobra.Command, r reconcileFlags, operation string) error {
	if f := checkWord("--format", r.format, "text", "json", "csv"); f != nil {
		return f
	}
	if r.probe == (r.file != "") {
		return usage("say what to compare with: --probe, or --file EXPORT")
	}
	p := operator.ReconcileParams{Operation: operation}
	for _, d := range []struct {
		flag, text string
		to         *time.Time
	}{{"--since", r.since, &p.Since}, {"--until", r.until, &p.Until}} {
		if d.text == "" {
			continue
		}
		v, err := config.ParseDuration(d.text)
		if err != nil {
			return usage("%s: %v", d.flag, err)
		}
		*d.to = time.Now().Add(-v)
	}
	var export *export
	if r.file != "" {
		var err error
		if export, err = readExport(a.path(r.file)); err != nil {
			return usage("--file: %v", err)
		}
		p.AskFunc = export.ask
	}
	ctx, cancel := a.interruptible(c)
	defer cancel()
	d, err := a.desk(ctx, c, "", r.probe)
	if err != nil {
		return err
	}
	defer d.close()
	report := &reconciling{a: a, format: r.format, all: r.all}
	p.By, p.ReportFunc = d.by, report.row
	counts, err := d.Reconcile(ctx, p)
	if err != nil {
		return interrupted(ctx, err)
	}
	if export != nil {
		for _, name := range export.rest() {
			counts[operator.KindExtra]++
			if err := report.write([]string{string(operator.KindExtra), "", "", "completed", name, "the export has it, and no key of this time"}); err != nil {
				return err
			}
		}
	}
	return report.end(counts)
}

// export is what happened outside, by key reference and by resource.
type export struct {
	column string
	seen   map[string]int // how often it happened
	met    map[string]bool
}

// readExport reads a CSV file with a heading; a column key_ref or resource is required.
func readExport(path string) (*export, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows := csv.NewReader(f)
	rows.FieldsPerRecord = -1
	head, err := rows.Read()
	if err != nil {
		return nil, errors.New("no heading")
	}
	e := &export{seen: map[string]int{}, met: map[string]bool{}}
	at := -1
	for _, name := range []string{"key_ref", "resource"} {
		if at = slices.Index(head, name); at >= 0 {
			e.column = name
			break
		}
	}
	if at < 0 {
		return nil, errors.New("the heading has neither key_ref nor resource")
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return e, nil
		}
		if err != nil {
			return nil, err
		}
		if at < len(row) && row[at] != "" {
			e.seen[row[at]]++
		}
	}
}

// ask looks a record up in the export. What has no resource cannot be found by one.
func (e *export) ask(_ context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
	names := []string{r.Ref()}
	if e.column == "resource" {
		names = nil
		for _, res := range append([]idempo.Resource{r.Result.Resource}, r.References...) {
			if !res.IsZero() {
				names = append(names, res.Type+":"+res.ID)
			}
		}
		if len(names) == 0 && r.State == idempo.StateInDoubt {
			return "", idempo.Result{}, errors.New("the key has no resource to look for")
		}
	}
	for _, name := range names {
		switch n := e.seen[name]; {
		case n > 1:
			e.met[name] = true
			return "", idempo.Result{}, errors.New("the export has it more than once: " + name)
		case n == 1:
			e.met[name] = true
			return idempo.StateCompleted, idempo.Result{}, nil
		}
	}
	return idempo.StateFailed, idempo.Result{}, nil
}

// rest are the names of which no record was met.
func (e *export) rest() (names []string) {
	for name := range e.seen {
		if !e.met[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reconciling writes the report.
type reconciling struct {
	a      *app
	format string
	all    bool
	headed bool
}

func (w *reconciling) row(c operator.Compared) error {
	if c.Kind == operator.KindAgree && !w.all {
		return nil
	}
	resource := ""
	if res := c.Record.Result.Resource; !res.IsZero() {
		resource = res.Type + ":" + res.ID
	}
	return w.write([]string{string(c.Kind), c.Record.Ref(), string(c.Record.State), string(c.State), resource, c.Why})
}

// write writes one row: kind, key reference, the record's state, the outside's, resource, why.
func (w *reconciling) write(row []string) error {
	switch w.format {
	case "json":
		return w.a.out.object(struct {
			Schema   int    `json:"schema"`
			Kind     string `json:"kind"`
			KeyRef   string `json:"key_ref"`
			State    string `json:"state"`
			Outside  string `json:"outside"`
			Resource string `json:"resource,omitempty"`
			Why      string `json:"why,omitempty"`
		}{1, row[0], row[1], row[2], row[3], row[4], row[5]})
	case "csv":
		out := csv.NewWriter(w.a.out)
		if !w.headed {
			_ = out.Write([]string{"kind", "key_ref", "state", "outside", "resource", "why"}) // Flush says what went wrong
		}
		w.headed = true
		for i, cell := range row { // a spreadsheet takes no cell for a formula
			if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				row[i] = "'" + cell
			}
		}
		_ = out.Write(row)
		out.Flush()
		return out.Error()
	}
	w.a.out.printf("%-15s  %-28s  %-9s  %s\n", row[0], orDash(row[1]), orDash(row[2]), escape(orDash(row[4])))
	if row[5] != "" {
		w.a.out.line("  " + escape(row[5]))
	}
	if row[2] == string(idempo.StateInDoubt) && row[3] != "" {
		w.a.out.printf("  idempo keys resolve %s --%s --reason \"…\"\n", row[1], row[3])
	}
	return w.a.out.failed
}

// end counts on stderr; what does not agree is exit 1.
func (w *reconciling) end(counts map[operator.Kind]int) error {
	var parts []string
	differ := 0
	for _, k := range operator.Kinds() {
		parts = append(parts, strings.ReplaceAll(string(k), "_", " ")+" "+strconv.Itoa(counts[k]))
		if k != operator.KindAgree {
			differ += counts[k]
		}
	}
	w.a.err.line(strings.Join(parts, ", "))
	if differ > 0 {
		return &failure{exit: exitNo, silent: true}
	}
	return w.a.out.failed
}
