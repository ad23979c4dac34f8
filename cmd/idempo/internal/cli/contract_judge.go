package cli

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/docfile"
	"github.com/idempo/idempo/contract"
)

type lintFlags struct {
	baseline, progress   string
	fetch, sarif, strict bool
}

func (a *app) contractLint() *cobra.Command {
	var l lintFlags
	c := &cobra.Command{
		Use: "lint DOCUMENT", Short: "say what an OpenAPI or AsyncAPI document leaves open about repeats",
		Long: "Read an OpenAPI 3.0 or 3.1, or AsyncAPI 3.0 document, and say of each unsafe operation and message\n" +
			"what it leaves open about repeats, as FILE:LINE:COL RULE severity message. Severities stand in the\n" +
			"configuration, contract.lint; one place of a document turns a rule off with\n" +
			"x-idempotency-lint: {off: [C07], reason: …}. Exit 1 on errors.",
		Example:     "idempo contract lint openapi.yaml\nidempo contract lint openapi.yaml --baseline released.yaml --sarif",
		Annotations: exits(exitNo, exitWarnings), Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.lint(c, args[0], l) },
	}
	f := c.Flags()
	f.StringVar(&l.baseline, "baseline", "", "the `document` as it was: what broke since is found as C11")
	f.BoolVar(&l.fetch, "allow-fetch", false, "let $ref lead to http and https addresses")
	f.BoolVar(&l.sarif, "sarif", false, "SARIF 2.1.0 instead of lines")
	f.BoolVar(&l.strict, "strict", false, "exit 2 if there are warnings only")
	f.Bool("json", false, "one JSON object a finding")
	f.StringVar(&l.progress, "progress", "auto", "how far it is, on stderr: auto, json or none")
	f.StringVar(&a.flags.config, "config", "", "configuration `file` with contract.lint; without it the severities of the rules")
	return c
}

// document loads one document.
func (a *app) document(file string, fetch bool) (*contract.Document, error) {
	content, err := docfile.Read(a.p.Dir, file)
	if err != nil {
		return nil, documentFailure(&contract.Problem{File: file, Message: "cannot be read: " + err.Error()})
	}
	files := docfile.Files(a.p.Dir)
	if fetch {
		files.Fetch = fetchDocument
	}
	d, err := contract.Load(file, content, files)
	if err != nil {
		return nil, documentFailure(err)
	}
	return d, nil
}

func fetchDocument(address string) ([]byte, error) {
	client := &http.Client{Timeout: 30 * time.Second}
	resp, err := client.Get(address)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be fetched", address)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", address, resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, docfile.MaxSize+1))
	if err == nil && len(b) > docfile.MaxSize {
		err = fmt.Errorf("%s is over %d MiB", address, docfile.MaxSize>>20)
	}
	return b, err
}

func (a *app) lint(c *cobra.Command, file string, l lintFlags) error {
	if f := checkWord("--progress", l.progress, "auto", "json", "none"); f != nil {
		return f
	}
	if l.sarif && a.json {
		return usage("--sarif and --json are two forms of one answer: give one")
	}
	d, err := a.document(file, l.fetch)
	if err != nil {
		return err
	}
	var o contract.LintOptions
	if a.configFile() != "" {
		s, _, err := config.Load(a.source(c))
		if err != nil {
			return err
		}
		o.Severities = s.Contract.Lint
	}
	if l.baseline != "" {
		if o.Baseline, err = a.document(l.baseline, l.fetch); err != nil {
			return err
		}
	}
	bar := (*progress)(nil)
	o.Progress = func(done, total int) {
		if bar == nil {
			bar = a.progress(l.progress, "lint", total)
		}
		if done%100 == 0 || done == total {
			bar.at(done)
		}
	}
	found, err := d.Lint(o)
	if bar != nil {
		bar.end()
	}
	if err != nil {
		return documentFailure(err)
	}
	return a.findings(file, found, l)
}

func (a *app) findings(file string, found []contract.Finding, l lintFlags) error {
	errors, warnings := 0, 0
	for _, f := range found {
		switch f.Severity {
		case contract.SeverityError:
			errors++
		case contract.SeverityWarning:
			warnings++
		}
	}
	switch {
	case l.sarif:
		if _, err := a.out.Write(contract.SARIF(found, a.build().Version)); err != nil {
			return err
		}
	case a.json:
		for _, f := range found {
			if err := a.out.object(struct {
				Schema int `json:"schema"`
				contract.Finding
			}{1, f}); err != nil {
				return err
			}
		}
	default:
		for _, f := range found {
			a.out.line(escape(f.String()))
		}
		a.err.line(escape(fmt.Sprintf("%s: %d errors, %d warnings", file, errors, warnings)))
	}
	switch {
	case errors > 0:
		return &failure{exit: exitNo, silent: true}
	case warnings > 0 && l.strict:
		return &failure{exit: exitWarnings, silent: true}
	}
	return nil
}

func (a *app) contractDiff() *cobra.Command {
	fetch := false
	c := &cobra.Command{
		Use: "diff OLD NEW", Short: "say what changed about repeats between two documents, and what breaks callers",
		Long: "Compare two OpenAPI or two AsyncAPI documents by what they promise of repeats. Values are compared\n" +
			"by meaning: P1D is PT24H. Exit 1 if a caller that relied on OLD may now have a second effect, or\n" +
			"get an answer it does not know.",
		Example:     "idempo contract diff released.yaml openapi.yaml\nidempo contract diff released.yaml openapi.yaml --json",
		Annotations: exits(exitNo), Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			before, err := a.document(args[0], fetch)
			if err != nil {
				return err
			}
			after, err := a.document(args[1], fetch)
			if err != nil {
				return err
			}
			if before.Async != after.Async {
				return usage("%s and %s are of two kinds, OpenAPI and AsyncAPI: nothing in them can be compared", args[0], args[1])
			}
			return a.changes(contract.Diff(before, after))
		},
	}
	c.Flags().BoolVar(&fetch, "allow-fetch", false, "let $ref lead to http and https addresses")
	c.Flags().Bool("json", false, "one JSON object a change")
	return c
}

func (a *app) changes(all []contract.Change) error {
	breaking := 0
	for _, c := range all {
		if c.Breaking {
			breaking++
		}
		if a.json {
			if err := a.out.object(struct {
				Schema int `json:"schema"`
				contract.Change
			}{1, c}); err != nil {
				return err
			}
			continue
		}
		a.out.line(escape(c.String()))
	}
	if !a.json {
		a.err.line(fmt.Sprintf("%d changes, %d of them breaking", len(all), breaking))
	}
	if breaking > 0 {
		return &failure{exit: exitNo, silent: true}
	}
	return nil
}
