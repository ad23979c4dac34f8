package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/webhook"
)

// hookDetail is an event with all that is kept of it, as JSON.
type hookDetail struct {
	hookRow
	Tenant    string                    `json:"tenant"`
	Method    string                    `json:"method"`
	Path      string                    `json:"path"`
	Headers   map[string][]string       `json:"headers"`
	Verdict   eventVerdict              `json:"verdict"`
	Attempt   string                    `json:"sender_attempt,omitempty"`
	SeenAt    string                    `json:"seen_at,omitempty"`
	Repeats   string                    `json:"repeats,omitempty"`
	Origin    string                    `json:"origin,omitempty"`
	BodySize  int                       `json:"body_size"`
	BodyUntil string                    `json:"body_until,omitempty"`
	Sealed    string                    `json:"sealed,omitempty"`
	Failures  []operator.MessageFailure `json:"failures"`
	Audit     []operator.EntryRow       `json:"audit"`
}

type eventVerdict struct {
	Scheme   string  `json:"scheme"`
	Secret   string  `json:"secret"`
	Signed   bool    `json:"delivery_id_signed"`
	SignedAt string  `json:"signed_at,omitempty"`
	Skew     float64 `json:"skew_seconds"`
}

func (a *app) webhooksShowCommand() *cobra.Command {
	var body, raw bool
	c := &cobra.Command{
		Use: "show RECEIPT[/ITEM]", Short: "show one event: what came, what was made of it, what became of it",
		Long: "Show one event, by its receipt as lists print it. Its body is shown with --body only; what looks like a token in it is\n" +
			"masked. --raw shows it byte for byte.",
		Example: "idempo webhooks show 01KC5YEE800123456789ABCDEF --json\nidempo webhooks show 01KC5YEE800123456789ABCDEF/3 --body",
		Args:    cobra.ExactArgs(1), Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error {
			find, err := hookEventFlags{}.find(args)
			if err != nil {
				return err
			}
			return a.atDeskOf(c, "", true, func(ctx context.Context, _ <-chan struct{}, d *desk) error {
				shown, err := d.Hook(ctx, operator.HooksParams{By: d.by, Find: find})
				if err != nil {
					return hookRefusal(err)
				}
				it := webhook.ItemOf(shown.Receipt)
				switch {
				case (body || raw) && it.Unreadable != nil:
					return &failure{exit: exitNo, code: "result_unreadable", message: "its body is encrypted under " + it.Sealed + ", and that key is not at hand", hint: "configure it in security.encryption_keys"}
				case (body || raw) && it.Body == nil:
					return &failure{exit: exitNo, code: "body_deleted", message: "its body was deleted at " + hookTime(it.BodyUntil) + ", as body_retention says"}
				case raw:
					_, err = a.out.Write(it.Body)
					return err
				case body:
					_, err = a.out.Write(maskTokens(it.Body))
					return err
				case a.json:
					return a.out.object(detailOf(it, shown))
				}
				a.showHook(it, shown)
				return a.out.failed
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&body, "body", false, "write the body, nothing else, with what looks like a token masked")
	f.BoolVar(&raw, "raw", false, "write the body, byte for byte")
	f.Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

var tokens = regexp.MustCompile(`(?i)("(?:[a-z_]*token|[a-z_]*secret|client_?state|[a-z_]*signature|password|authorization|response_url)"\s*:\s*")((?:[^"\\]|\\.)*)"`)

var formTokens = regexp.MustCompile(`(?i)((?:^|&)(?:[a-z_]*token|[a-z_]*secret|response_url)=)[^&]*`)

// maskTokens hides the values of members and fields that are credentials by their name.
func maskTokens(body []byte) []byte {
	return formTokens.ReplaceAll(tokens.ReplaceAll(body, []byte(`${1}[masked]"`)), []byte(`${1}[masked]`))
}

func detailOf(it webhook.Item, shown operator.ShownMessage) hookDetail {
	message := operator.MessageDetailOf(shown)
	return hookDetail{hookRow: hookRowOf(it), Tenant: it.Tenant, Method: it.Method, Path: it.Path, Headers: it.Header,
		Verdict: eventVerdict{it.Scheme, it.Secret, it.Signed, hookTime(it.SignedAt), it.Skew.Seconds()}, Attempt: it.Attempt, SeenAt: hookTime(it.SeenAt),
		Repeats: it.Repeats, Origin: it.Origin, BodySize: len(it.Body), BodyUntil: hookTime(it.BodyUntil), Sealed: it.Sealed, Failures: message.Failures, Audit: message.Audit}
}

// showHook writes an event for a person.
func (a *app) showHook(it webhook.Item, shown operator.ShownMessage) {
	row := func(name, format string, args ...any) {
		a.out.line(fmt.Sprintf("%-12s ", name) + escape(fmt.Sprintf(format, args...)))
	}
	maybe := func(name, text string) {
		if text != "" {
			row(name, "%s", text)
		}
	}
	r := shown.Receipt
	row("receipt", "%s", it.Ref())
	row("source", "%s", strings.TrimSuffix(it.Source+", "+it.Provider, ", "))
	row("tenant", "%s", it.Tenant)
	status := it.Status
	if it.Reason != "" && it.Reason != it.Status {
		status += ", " + it.Reason
	}
	row("status", "%s, since %s", status, ago(r.Now.Sub(it.ChangedAt)))
	if r.Holds && it.Lane != "" {
		row("", "later events of its lane wait for it")
	}
	if it.Unreadable != nil {
		row("sealed", "under %s, whose key is not at hand: what came in is not known", it.Sealed)
	}
	class := map[bool]string{true: "signed", false: "not signed"}[it.Signed]
	if it.DeliveryID != "" {
		row("delivery id", "%s, %s", it.DeliveryID, class)
	}
	maybe("type", it.Type)
	maybe("lane", it.Lane)
	maybe("version", it.Version)
	row("received", "%s", a.moment(it.ReceivedAt))
	maybe("origin", it.Origin)
	if it.Seen > 0 {
		row("came again", "%d times, last at %s", it.Seen, a.moment(it.SeenAt))
	}
	maybe("repeats", it.Repeats)
	if it.Scheme != "" {
		row("verified", "%s, secret %s", it.Scheme, it.Secret)
	}
	if !it.SignedAt.IsZero() {
		row("signed at", "%s, skew %s", a.moment(it.SignedAt), it.Skew)
	}
	maybe("sender says", map[bool]string{true: "attempt " + it.Attempt}[it.Attempt != ""])
	maybe("request", strings.TrimSpace(it.Method+" "+it.Path))
	var names []string
	for name := range it.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range it.Header[name] {
			row("", "%s: %s", name, value)
		}
	}
	switch {
	case it.Body == nil && !it.BodyUntil.IsZero():
		row("body", "deleted at %s", a.moment(it.BodyUntil))
	case it.BodyUntil.IsZero():
		row("body", "%d bytes", len(it.Body))
	default:
		row("body", "%d bytes, until %s", len(it.Body), a.moment(it.BodyUntil))
	}
	row("attempts", "%d", it.Attempts)
	if !it.NextAt.IsZero() {
		row("next", "%s", a.moment(it.NextAt))
	}
	for _, f := range it.Failures {
		row("failure", "%s", a.moment(f.At))
		a.out.line(wrap(escape(f.Error), strings.Repeat(" ", 13), 80))
	}
	a.printAudit(shown.Audit)
	a.printNext(nextOfHook(it))
}

// nextOfHook says what can become of an event.
func nextOfHook(it webhook.Item) []operator.NextStep {
	act := func(verb, rest, text string) operator.NextStep {
		return operator.NextStep{Text: text, Command: "idempo webhooks " + verb + " " + it.Ref() + rest + ` --reason "…"`}
	}
	skip := act("skip", "", "is done without its effect; its lane goes on")
	switch it.Status {
	case "handled", "stale", "skipped":
		return []operator.NextStep{act("replay", " --again --confirm "+it.Ref(), "runs a second time, as the next generation")}
	case "in_doubt":
		return []operator.NextStep{{Text: "find out what happened, and say so", Command: "idempo keys list --state in_doubt --operation inbox:webhook:" + it.Source}}
	case "stored", "running", "held":
		return []operator.NextStep{{Text: "it runs when its turn or its time comes"}}
	case "parked":
		if it.Reason == webhook.ParkedConflict || it.Reason == webhook.ParkedSuspect {
			return []operator.NextStep{act("replay", " --accept", "runs as an event of its own"), skip}
		}
	}
	return []operator.NextStep{act("replay", "", "runs again, attempts from 0, as soon as a worker comes to it"), skip}
}
