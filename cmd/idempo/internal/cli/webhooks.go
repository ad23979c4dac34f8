package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/spell"
	"github.com/idempo/idempo/webhook"
)

func (a *app) webhooksCommand() *cobra.Command {
	c := &cobra.Command{Use: "webhooks", Short: "callbacks: what came, run it again; why one is refused; what a provider would send",
		Example: "idempo webhooks providers stripe\nidempo webhooks doctor --provider github --secret-env GH_HOOK --request captured.http"}
	c.AddCommand(a.webhooksListCommand(), a.webhooksShowCommand(), a.webhooksReplayCommand(), a.webhooksSkipCommand(), a.webhooksSourcesCommand(),
		a.webhooksProvidersCommand(), a.webhooksDoctorCommand(), a.webhooksSendCommand())
	return c
}

// hookFlags name one account of a provider: by a source of the configuration, or by themselves.
type hookFlags struct {
	source, provider, secretEnv, secretFile, url, cert, verifyTokenEnv string
	topics                                                             []string
	minVersion                                                         string
}

func (h *hookFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&h.source, "source", "", "`name` of a source of the configuration; or, without one:")
	f.StringVar(&h.provider, "provider", "", "`name` of idempo webhooks providers")
	f.StringVar(&h.secretEnv, "secret-env", "", "`variable` that holds the secret as the provider shows it")
	f.StringVar(&h.secretFile, "secret-file", "", "`file` that holds it")
	f.StringVar(&h.url, "url", "", "public `url` as the provider was given it, where it is signed")
	f.StringSliceVar(&h.topics, "topic", nil, "accepted `arn` of aws-sns")
	f.StringVar(&h.minVersion, "min-version", "", "oldest signature version of hubspot: v1, v2 or v3")
}

// account is what the flags name: a source, the profiles of the file, the file's other sources, and where serve takes it.
type account struct {
	webhook.Source
	own    []webhook.Profile
	others []*webhook.Verifier
	to     string
}

// hookAccount finds the account that the flags name.
func (a *app) hookAccount(c *cobra.Command, h *hookFlags) (account, error) {
	if h.source == "" {
		s, fail := a.hookSource(h)
		if fail != nil {
			return account{}, fail
		}
		return account{Source: s}, nil
	}
	if h.provider != "" || h.secretEnv != "" || h.secretFile != "" {
		return account{}, usage("--source names provider and secrets already; give one or the other")
	}
	set, err := a.settings(c)
	if err != nil {
		return account{}, err
	}
	w := set.Webhooks
	found := account{own: w.Config.Providers, to: "http://" + set.Listen.Gateway + w.Path + "/" + h.source}
	var names []string
	for _, s := range w.Config.Sources {
		names = append(names, s.Name)
		if s.Name == h.source {
			found.Source = s
			continue
		}
		v, err := webhook.NewVerifier(s, w.Config.Providers...)
		if err != nil {
			return account{}, err
		}
		found.others = append(found.others, v)
	}
	if found.Name == "" {
		f := usage("%s is no source of %s", quoteWord(h.source), orElse(escape(set.File), "a configuration, since there is none"))
		f.hint = "known are: " + strings.Join(names, " ")
		if near := spell.Nearest(h.source, names); near != "" {
			f.hint = "did you mean " + near + "?"
		}
		return account{}, f
	}
	if h.url != "" {
		found.PublicURL = h.url
	}
	return found, nil
}

// hookSource is the account of a command line that names no source.
func (a *app) hookSource(h *hookFlags) (webhook.Source, *failure) {
	s := webhook.Source{Name: "this", Provider: h.provider, PublicURL: h.url, Topics: h.topics, MinVersion: h.minVersion}
	if h.provider == "" {
		return s, &failure{exit: exitUsage, code: "usage", message: "name a source with --source, or the provider with --provider", hint: "idempo webhooks providers lists them"}
	}
	if f := checkProvider(h.provider); f != nil {
		return s, f
	}
	switch {
	case h.secretEnv != "" && h.secretFile != "":
		return s, usage("--secret-env and --secret-file name two places of one secret")
	case h.secretEnv != "":
		s.Secrets = []webhook.Secret{webhook.FromFunc(h.secretEnv, "environment variable "+h.secretEnv, func() (string, error) {
			value, ok := a.lookupEnv(h.secretEnv)
			if !ok {
				return "", errors.New("it is not set")
			}
			return value, nil
		})}
	case h.secretFile != "":
		s.Secrets = []webhook.Secret{webhook.FromFile("file", a.path(h.secretFile))}
	}
	return s, nil
}

func checkProvider(name string) *failure {
	var names []string
	for _, p := range webhook.Providers() {
		if p.Name == name {
			return nil
		}
		names = append(names, p.Name)
	}
	f := usage("%s is no provider", quoteWord(name))
	f.hint = "idempo webhooks providers lists them"
	if near := spell.Nearest(name, names); near != "" {
		f.hint = "did you mean " + near + "? " + f.hint
	}
	return f
}

// faulty says what a source needs, in the words of the command line.
func faulty(err error) *failure {
	text := strings.ReplaceAll(err.Error(), "webhooks.sources.this.", "")
	return &failure{exit: exitUsage, code: "usage", message: text, hint: "secrets: --secret-env or --secret-file; public_url: --url; topics: --topic"}
}

func (a *app) webhooksProvidersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "providers [NAME]", Short: "list the providers that are known, or show one",
		Long: "List the providers that are known: what is signed, whether the delivery id is, how late they\n" +
			"still deliver, how long keys are kept, and when that was last checked. NAME shows one in full.",
		Example: "idempo webhooks providers\nidempo webhooks providers stripe\nidempo webhooks providers --json",
		Args:    cobra.MaximumNArgs(1), Annotations: exits(),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listProviders()
			}
			if f := checkProvider(args[0]); f != nil {
				return f
			}
			for _, p := range webhook.Providers() {
				if p.Name == args[0] {
					return a.showProvider(p)
				}
			}
			return nil
		},
	}
	c.Flags().Bool("json", false, "one JSON object for each")
	return c
}

// provider is a profile as JSON.
type provider struct {
	Schema       int      `json:"schema"`
	Name         string   `json:"name"`
	Family       string   `json:"family"`
	Header       string   `json:"header,omitempty"`
	Alg          string   `json:"alg,omitempty"`
	Secret       string   `json:"secret"`
	Content      string   `json:"content,omitempty"`
	BodySigned   bool     `json:"body_signed"`
	Tolerance    string   `json:"tolerance,omitempty"`
	TimeClass    string   `json:"time_class,omitempty"`
	IDs          []string `json:"ids"`
	Retries      string   `json:"retries,omitempty"`
	ByHand       string   `json:"by_hand,omitempty"`
	AnswerWithin string   `json:"answer_within,omitempty"`
	Retention    string   `json:"retention"`
	Handshake    string   `json:"handshake,omitempty"`
	Note         string   `json:"note,omitempty"`
	Checked      string   `json:"checked"`
}

func asProvider(p webhook.Profile) provider {
	out := provider{Schema: 1, Name: p.Name, Family: string(p.Family), Header: p.Header, Secret: string(p.SecretForm), BodySigned: p.BodySigned(),
		Tolerance: span(p.Time.Tolerance), TimeClass: string(p.Time.Class), IDs: idNames(p), Retries: span(p.Retries), ByHand: span(p.ByHand),
		AnswerWithin: span(p.AnswerWithin), Retention: span(p.Retention), Handshake: p.Handshake, Note: p.Note, Checked: p.Checked}
	if p.Family == webhook.FamilyHMAC || p.Family == webhook.FamilyList {
		out.Alg, out.Content = string(p.Alg), p.Content
	}
	return out
}

// idNames are the places of the delivery ids, each with its class.
func idNames(p webhook.Profile) []string {
	shapes := []webhook.Shape{p.Shape}
	for _, i := range p.Items {
		shapes = append(shapes, i.Shape)
	}
	names := []string{}
	bytes := false
	for _, s := range shapes {
		bytes = bytes || s.ByBytes
		for _, id := range s.IDs {
			var parts []string
			for _, part := range id.Parts {
				parts = append(parts, part.Header+part.JSON+part.Form)
			}
			class := " U"
			if id.Signed {
				class = " S"
			}
			names = append(names, strings.Join(parts, "+")+class)
		}
	}
	if bytes {
		names = append(names, "bytes")
	}
	return names
}

// span shows a duration in the largest units that fit, and nothing for none.
func span(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d >= 48*time.Hour && d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

func (a *app) listProviders() error {
	all := webhook.Providers()
	if a.json {
		for _, p := range all {
			if err := a.out.object(asProvider(p)); err != nil {
				return err
			}
		}
		return nil
	}
	a.out.printf("%-18s %-9s %-8s %-9s %-9s %-10s %s\n", "provider", "family", "window", "horizon", "retention", "checked", "delivery id")
	for _, p := range all {
		a.out.printf("%-18s %-9s %-8s %-9s %-9s %-10s %s\n", p.Name, p.Family, orElse(span(p.Time.Tolerance), "–"), orElse(span(p.Horizon()), "–"), span(p.Retention), p.Checked,
			strings.Join(idNames(p), ", "))
	}
	return nil
}

func (a *app) showProvider(p webhook.Profile) error {
	out := asProvider(p)
	if a.json {
		return a.out.object(out)
	}
	row := func(name, value string) {
		if value != "" {
			a.out.printf("%-14s %s\n", name, value)
		}
	}
	row("provider", out.Name)
	row("family", out.Family)
	row("header", out.Header)
	row("hash", out.Alg)
	row("secret", out.Secret)
	row("signed", out.Content)
	row("body", map[bool]string{true: "signed", false: "not signed"}[out.BodySigned])
	row("window", strings.TrimSpace(out.Tolerance+" "+out.TimeClass))
	row("delivery ids", strings.Join(out.IDs, ", "))
	row("retries for", out.Retries)
	row("by hand for", out.ByHand)
	row("answer within", out.AnswerWithin)
	row("keys kept", out.Retention)
	row("handshake", out.Handshake)
	row("note", out.Note)
	row("checked", out.Checked)
	return nil
}

// readSmall reads a file of the command line, bounded.
func (a *app) readSmall(name string, limit int64) ([]byte, *failure) {
	st, err := os.Stat(a.path(name))
	if err != nil || st.IsDir() {
		return nil, usage("%s cannot be read: %s", escape(name), reasonOf(err))
	}
	if st.Size() > limit {
		return nil, usage("%s is larger than %d MiB", escape(name), limit>>20)
	}
	raw, err := os.ReadFile(a.path(name))
	if err != nil {
		return nil, usage("%s cannot be read: %s", escape(name), reasonOf(err))
	}
	return raw, nil
}

func reasonOf(err error) string {
	if err == nil {
		return "it is a folder"
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
