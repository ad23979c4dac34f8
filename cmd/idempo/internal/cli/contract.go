package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/docfile"
	"github.com/idempo/idempo/cmd/idempo/internal/promise"
	"github.com/idempo/idempo/contract"
)

func (a *app) contractCommand() *cobra.Command {
	c := &cobra.Command{Use: "contract", Short: "print what is promised of retries, judge such documents, compare them",
		Example: "idempo contract print --format markdown\nidempo contract lint openapi.yaml"}
	c.AddCommand(a.contractPrint(), a.contractLint(), a.contractDiff())
	return c
}

type printFlags struct {
	format, merge, server string
	write                 bool
}

func (a *app) contractPrint() *cobra.Command {
	var p printFlags
	c := &cobra.Command{
		Use: "print", Short: "print what the configuration, or a running server, promises",
		Long: "Print the promises of the guarded routes and webhook sources: as an OpenAPI 3.1 or AsyncAPI 3.0\n" +
			"document with x-idempotency, as Markdown, or as JSON. They are read off the declarations that serve\n" +
			"uses, so that a change of a guard, a retention or a status changes the document. With --merge they\n" +
			"go into an OpenAPI document of yours, and every other line of it stays as it is.",
		Example:     "idempo contract print --format markdown\nidempo contract print --merge openapi.yaml --write",
		Annotations: exits(exitNo, exitUnreachable),
		RunE:        func(c *cobra.Command, _ []string) error { return a.printContract(c, p) },
	}
	f := c.Flags()
	f.StringVar(&p.format, "format", "openapi", "`word`: openapi, asyncapi, markdown or json")
	f.StringVar(&p.merge, "merge", "", "put them into this OpenAPI `document`, and print that")
	f.BoolVar(&p.write, "write", false, "with --merge: change the file instead of printing it")
	f.StringVar(&p.server, "server", "", "ask the dashboard at this `url` instead; its token in IDEMPO_TOKEN")
	f.StringVar(&a.flags.config, "config", "", "configuration `file`; else $IDEMPO_CONFIG, ./idempo.yaml, the user's, the system's")
	f.StringVar(&a.flags.upstream, "upstream", "", "without a file: one route for everything, to this `url`")
	return c
}

func (a *app) printContract(c *cobra.Command, p printFlags) error {
	if f := checkWord("--format", p.format, "openapi", "asyncapi", "markdown", "json"); f != nil {
		return f
	}
	if p.write && p.merge == "" {
		return usage("--write changes the document of --merge, and there is none")
	}
	if p.merge != "" && c.Flags().Changed("format") && p.format != "openapi" {
		return usage("--merge puts promises into an OpenAPI document: --format %s does not go with it", p.format)
	}
	said, err := a.contract(c, p.server)
	if err != nil {
		return err
	}
	if p.merge != "" {
		return a.mergeContract(said, p)
	}
	var b []byte
	switch p.format {
	case "openapi":
		b = contract.YAML(said.OpenAPI())
	case "asyncapi":
		b = contract.YAML(said.AsyncAPI())
	case "markdown":
		b = said.Markdown()
	default:
		b = said.JSON()
	}
	_, err = a.out.Write(b)
	return err
}

// contract is what is promised: by the configuration, or by a server.
func (a *app) contract(c *cobra.Command, server string) (*contract.Contract, error) {
	if server != "" {
		return a.askContract(server)
	}
	s, err := a.settings(c)
	if err != nil {
		return nil, err
	}
	if s.File == "" && s.Upstream == "" {
		return nil, &failure{exit: exitUsage, code: "config_invalid", message: "no configuration file: nothing is declared that could be promised", hint: "name one with --config, or give --upstream URL"}
	}
	return promise.Read(s, a.build().Version)
}

// askContract gets the contract of a server. A redirect is refused, since the token would go where it leads.
func (a *app) askContract(server string) (*contract.Contract, error) {
	client := &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(server, "/")+"/api/v1/contract", nil)
	if err != nil || req.URL.Host == "" {
		return nil, usage("--server: not a URL such as http://127.0.0.1:7070")
	}
	if token := a.env("IDEMPO_TOKEN"); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, &failure{exit: exitUnreachable, code: "server_unavailable", message: "the server at " + req.URL.Host + " cannot be reached: nothing was asked of it", hint: "is serve running, and is this its listen.admin?"}
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return nil, &failure{exit: exitNo, code: "unauthorized", message: "the server at " + req.URL.Host + " does not let this caller in", hint: "its token stands in admin.token of its data folder: put it into IDEMPO_TOKEN"}
	default:
		return nil, &failure{exit: exitUnreachable, code: "server_unavailable", message: fmt.Sprintf("the server at %s answered %d to /api/v1/contract", req.URL.Host, resp.StatusCode), hint: "is this the address of listen.admin?"}
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, docfile.MaxSize))
	if err != nil {
		return nil, &failure{exit: exitUnreachable, code: "server_unavailable", message: "the answer of the server at " + req.URL.Host + " broke off"}
	}
	return contract.FromJSON(b)
}

func (a *app) mergeContract(said *contract.Contract, p printFlags) error {
	content, err := docfile.Read(a.p.Dir, p.merge)
	if err != nil {
		return documentFailure(&contract.Problem{File: p.merge, Message: "cannot be read: " + err.Error()})
	}
	merged, missing, err := contract.Merge(p.merge, content, docfile.Files(a.p.Dir), said)
	if err != nil {
		return documentFailure(err)
	}
	for _, e := range missing {
		a.err.line("warning: " + escape(p.merge+" has no "+e+": it is promised and stays undocumented there"))
	}
	if !p.write {
		_, err = a.out.Write(merged)
		return err
	}
	return replaceFile(a.path(p.merge), merged)
}

// replaceFile writes a file beside the old one and puts it in its place, so that no reader ever sees half of it.
func replaceFile(file string, content []byte) error {
	mode := os.FileMode(0o644)
	if st, err := os.Stat(file); err == nil {
		mode = st.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".idempo-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// documentFailure is a document that cannot be judged.
func documentFailure(err error) error {
	f := &failure{exit: exitUsage, code: "document_invalid", message: err.Error()}
	add := func(p *contract.Problem) {
		f.lines = append(f.lines, config.Problem{File: p.File, Line: p.Line, Col: p.Col, Message: p.Message})
	}
	if p, ok := errors.AsType[*contract.Problem](err); ok {
		add(p)
	}
	if ps, ok := errors.AsType[contract.Problems](err); ok {
		for _, p := range ps {
			add(p)
		}
	}
	return f
}
