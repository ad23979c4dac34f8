package cli

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/webhook"
)

const maxCapture = 32 << 20

func (a *app) webhooksDoctorCommand() *cobra.Command {
	var h hookFlags
	var request, now, vectors string
	c := &cobra.Command{
		Use: "doctor", Short: "say why a captured request is accepted or refused",
		Long: "Take a captured request the way of the receiver and say what was found at each step. Of a\n" +
			"refused one, try what usually goes wrong and name what fits: a line end added, JSON encoded\n" +
			"again, another secret, another URL, a clock that is off. No secret and no code is shown.\n" +
			"FILE is a raw HTTP/1.1 request, or one object of a vector file, which holds its own secret.",
		Example: "idempo webhooks doctor --provider github --secret-env GH_HOOK --request captured.http\n" +
			"idempo webhooks doctor --provider stripe --secret-file st.txt --request r.http --now 1780000000\n" +
			"idempo webhooks doctor --source gh --request captured.http\nidempo webhooks doctor --vectors vectors.json",
		Annotations: exits(exitNo),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case vectors != "" && request != "":
				return usage("--vectors and --request are two questions; ask one")
			case vectors != "":
				return a.checkVectors(vectors)
			case request == "":
				return &failure{exit: exitUsage, code: "usage", message: "name what to look at with --request FILE, or --vectors FILE", hint: "idempo webhooks doctor --help"}
			}
			return a.explainRequest(c, &h, request, now)
		},
	}
	h.register(c)
	f := c.Flags()
	f.StringVar(&request, "request", "", "`file` with the request")
	f.StringVar(&now, "now", "", "receiver's clock: unix seconds or RFC 3339 `time`; else that of this machine, or the vector's")
	f.StringVar(&h.cert, "cert", "", "PEM `file` that stands in for the certificate URL")
	f.StringVar(&h.verifyTokenEnv, "verify-token-env", "", "`variable` with the verify token of meta")
	f.StringVar(&vectors, "vectors", "", "run every vector of `file` and say which differ")
	f.Bool("json", false, "one JSON object")
	f.StringVar(&a.flags.config, "config", "", "configuration `file` with the source")
	return c
}

func (a *app) explainRequest(c *cobra.Command, h *hookFlags, name, nowText string) error {
	raw, fail := a.readSmall(name, maxCapture)
	if fail != nil {
		return fail
	}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return a.explainVector(raw, nowText)
	}
	req, err := webhook.ParseCaptured(raw)
	if err != nil {
		return usage("%s: %s", escape(name), err)
	}
	s, err := a.hookAccount(c, h)
	if err != nil {
		return err
	}
	if h.cert != "" {
		if s.Certificate, fail = a.readSmall(h.cert, 1<<20); fail != nil {
			return fail
		}
	}
	if h.verifyTokenEnv != "" {
		token := webhook.FromFunc(h.verifyTokenEnv, "environment variable "+h.verifyTokenEnv, func() (string, error) { return a.env(h.verifyTokenEnv), nil })
		s.VerifyToken = &token
	}
	v, err := webhook.NewVerifier(s.Source, s.own...)
	if err != nil {
		return faulty(err)
	}
	now, fail := parseNow(nowText, time.Now())
	if fail != nil {
		return fail
	}
	return a.explanation(webhook.Explain(v, req, now, s.others...), v.Warnings())
}

// explainVector takes provider, secret, URL and clock from the vector itself.
func (a *app) explainVector(raw []byte, nowText string) error {
	var vec webhook.Vector
	if err := json.Unmarshal(raw, &vec); err != nil {
		return usage("the vector cannot be read: %s", err)
	}
	s, own := vec.Source()
	v, err := webhook.NewVerifier(s, own...)
	if err != nil {
		return faulty(err)
	}
	now, fail := parseNow(nowText, vec.Now(v))
	if fail != nil {
		return fail
	}
	return a.explanation(webhook.Explain(v, vec.Request(), now), v.Warnings())
}

func (a *app) explanation(e webhook.Explanation, warnings []string) error {
	for _, w := range warnings {
		a.err.line("warning: " + escape(w))
	}
	if a.json {
		type step struct {
			Step  string `json:"step"`
			State string `json:"state"`
			Text  string `json:"text"`
		}
		out := struct {
			Schema   int      `json:"schema"`
			Accepted bool     `json:"accepted"`
			Reason   string   `json:"reason,omitempty"`
			Steps    []step   `json:"steps"`
			Near     []string `json:"near,omitempty"`
		}{Schema: 1, Accepted: e.Accepted, Reason: string(e.Reason), Near: e.Near}
		for _, s := range e.Steps {
			out.Steps = append(out.Steps, step{s.Name, s.State, s.Text})
		}
		if err := a.out.object(out); err != nil {
			return err
		}
	} else {
		for line := range bytes.Lines([]byte(e.String())) {
			a.out.line(escape(string(bytes.TrimSuffix(line, []byte("\n")))))
		}
	}
	if !e.Accepted {
		return &failure{exit: exitNo, silent: true}
	}
	return nil
}

// parseNow reads a clock: unix seconds or RFC 3339.
func parseNow(text string, otherwise time.Time) (time.Time, *failure) {
	if text == "" {
		return otherwise, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(n, 0), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, usage("%s is neither unix seconds nor an RFC 3339 time such as 2026-05-28T20:26:40Z", quoteWord(text))
	}
	return t, nil
}

// checkVectors runs a vector file: a line for each that differs, then totals.
func (a *app) checkVectors(name string) error {
	raw, fail := a.readSmall(name, maxCapture)
	if fail != nil {
		return fail
	}
	var list []webhook.Vector
	if err := json.Unmarshal(raw, &list); err != nil {
		return usage("%s: no array of vectors: %s", escape(name), err)
	}
	type difference struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	differ, unjudged := []difference{}, 0
	for i := range list {
		if list[i].Valid == nil {
			unjudged++
			continue
		}
		if err := list[i].Check(); err != nil {
			differ = append(differ, difference{list[i].ID, err.Error()})
		}
	}
	agree := len(list) - len(differ) - unjudged
	if a.json {
		if err := a.out.object(struct {
			Schema   int          `json:"schema"`
			Agree    int          `json:"agree"`
			Differ   []difference `json:"differ"`
			Unjudged int          `json:"unjudged"`
		}{1, agree, differ, unjudged}); err != nil {
			return err
		}
	} else {
		for _, d := range differ {
			a.out.line(escape(d.ID + ": " + d.Text))
		}
		a.out.printf("%d agree, %d differ, %d state nothing\n", agree, len(differ), unjudged)
	}
	if len(differ) > 0 {
		return &failure{exit: exitNo, silent: true}
	}
	return nil
}
