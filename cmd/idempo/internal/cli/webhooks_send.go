package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/webhook"
)

// sending is one webhooks send.
type sending struct {
	a                *app
	account          account
	params           webhook.SignParams
	to               string
	stamp            bool // each attempt gets a time of its own
	repeat, parallel int
}

func (a *app) webhooksSendCommand() *cobra.Command {
	var h hookFlags
	var to, body, kind, id, at string
	var repeat, parallel int
	var printOnly, form bool
	c := &cobra.Command{
		Use: "send", Short: "sign a body as the provider would, and send it",
		Long: "Sign a body as the provider would, and send it, once or many times with the same delivery id.\n" +
			"A status, a time and the id are printed for each. --print shows the curl line instead.\n" +
			"Providers that sign with a certificate, or a key that only they have, cannot be signed for.",
		Example: "idempo webhooks send --source gh --body b --type push --print\nidempo webhooks send --provider github --secret-env GH --body b --to http://localhost\n" +
			"idempo webhooks send --provider stripe --secret-env S --body b --to http://localhost --repeat 9\n" +
			"idempo webhooks send --provider slack --secret-env S --body b --to http://localhost --print",
		Annotations: exits(exitNo, exitUnreachable, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			s := &sending{a: a, to: to, repeat: repeat, parallel: parallel, stamp: at == ""}
			if err := s.prepare(c, &h, body, at); err != nil {
				return err
			}
			s.params.ID, s.params.Type, s.params.Form = id, kind, form
			if id == "" {
				s.params.ID = fmt.Sprintf("idempo-%d", time.Now().UnixNano())
			}
			if printOnly {
				return s.print()
			}
			ctx, cancel := a.interruptible(c)
			defer cancel()
			return s.send(ctx)
		},
	}
	h.register(c)
	f := c.Flags()
	f.StringVar(&a.flags.config, "config", "", "configuration `file` with the source")
	f.StringVar(&to, "to", "", "`url` to send to, else where serve takes the source; its query is signed where the provider signs it")
	f.StringVar(&body, "body", "", "`file` with the body")
	f.StringVar(&kind, "type", "", "`type` of the event, where it stands in a header")
	f.StringVar(&id, "id", "", "delivery `id`, where it stands in a header; else a new one")
	f.StringVar(&at, "at", "", "signed `time`: unix seconds or RFC 3339; else now")
	f.BoolVar(&form, "form", false, "the body is a form, not JSON")
	f.IntVar(&repeat, "repeat", 1, "how often")
	f.IntVar(&parallel, "parallel", 1, "how many at once")
	f.BoolVar(&printOnly, "print", false, "show a curl line and send nothing")
	return c
}

func (s *sending) prepare(c *cobra.Command, h *hookFlags, body, at string) error {
	missing := &failure{exit: exitUsage, code: "usage", message: "name the body with --body FILE and the receiver with --to URL", hint: "idempo webhooks send --help"}
	if body == "" || s.to == "" && h.source == "" {
		return missing
	}
	if s.repeat < 1 || s.parallel < 1 || s.parallel > 1000 {
		return usage("--repeat is at least 1, --parallel 1 to 1000")
	}
	var fail *failure
	if s.params.Body, fail = s.a.readSmall(body, maxCapture); fail != nil {
		return fail
	}
	var err error
	if s.account, err = s.a.hookAccount(c, h); err != nil {
		return err
	}
	s.to = orElse(s.to, s.account.to)
	u, err := url.Parse(s.to)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usage("%s is no http or https URL", quoteWord(s.to))
	}
	if s.account.PublicURL == "" { // the provider signs the URL it was given: without --url that is where it sends to
		plain := *u
		plain.RawQuery, plain.Fragment = "", ""
		s.account.PublicURL = plain.String()
	}
	s.params.Query = u.RawQuery
	if s.params.At, fail = parseNow(at, time.Now()); fail != nil {
		return fail
	}
	return nil
}

func (s *sending) sign() (webhook.Signed, string, error) {
	p := s.params
	if s.stamp {
		p.At = time.Now()
	}
	out, err := webhook.Sign(s.account.Source, p, s.account.own...)
	if err != nil {
		if _, ok := errors.AsType[*webhook.Fault](err); ok {
			return out, "", faulty(err)
		}
		return out, "", usage("%s", err)
	}
	u, err := url.Parse(s.to)
	if err != nil {
		return out, "", usage("%s", err)
	}
	u.RawQuery = out.Query
	return out, u.String(), nil
}

// print shows the curl line. The body stands in it whole, since a code may stand inside the body.
func (s *sending) print() error {
	out, to, err := s.sign()
	if err != nil {
		return err
	}
	words := []string{"curl", "-sS", "-X", out.Method, shellExact(to)}
	names := make([]string, 0, len(out.Header))
	for name := range out.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		words = append(words, "-H", shellExact(name+": "+out.Header.Get(name)))
	}
	if bytes.IndexByte(out.Body, 0) >= 0 {
		return usage("the body holds a NUL byte, which no command line can carry; send it without --print")
	}
	s.a.out.line(strings.Join(append(words, "--data-raw", shellExact(string(out.Body))), " "))
	return nil
}

// shellExact quotes a word for a POSIX shell so that every byte of it arrives.
func shellExact(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// sent is one answer.
type sent struct {
	status int
	took   time.Duration
	err    error
}

func (s *sending) send(ctx context.Context) error {
	client := &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if _, _, err := s.sign(); err != nil {
		return err
	}
	work := make(chan struct{}, s.repeat)
	for range s.repeat {
		work <- struct{}{}
	}
	close(work)
	results := make(chan sent, s.parallel)
	var group sync.WaitGroup
	for range min(s.parallel, s.repeat) {
		group.Go(func() {
			for range work {
				if ctx.Err() != nil {
					return
				}
				results <- s.once(ctx, client)
			}
		})
	}
	go func() { group.Wait(); close(results) }()
	good, dialled, count, unreached := 0, 0, 0, error(nil)
	for r := range results {
		count++
		if r.err != nil {
			unreached = r.err
			if e, ok := errors.AsType[*net.OpError](r.err); ok && e.Op == "dial" {
				dialled++
			}
			s.a.out.printf("no answer  %s  %s\n", r.took.Round(time.Millisecond), escape(s.params.ID))
			continue
		}
		if r.status >= 200 && r.status < 300 {
			good++
		}
		s.a.out.printf("%d  %s  %s\n", r.status, r.took.Round(time.Millisecond), escape(s.params.ID))
	}
	switch {
	case ctx.Err() != nil && count < s.repeat:
		return &failure{exit: exitInterrupted, silent: true}
	case unreached != nil && count == dialled: // not one of them reached anybody
		return &failure{exit: exitUnreachable, code: "target_unreachable", message: "no answer: " + escape(unreached.Error()), hint: "is the receiver running at the address of --to?"}
	case good < s.repeat:
		return &failure{exit: exitNo, silent: true}
	}
	return nil
}

func (s *sending) once(ctx context.Context, client *http.Client) sent {
	start := time.Now()
	out, to, err := s.sign()
	if err != nil {
		return sent{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, out.Method, to, bytes.NewReader(out.Body))
	if err != nil {
		return sent{err: err}
	}
	req.Header = out.Header
	res, err := client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return sent{took: time.Since(start), err: err}
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	return sent{status: res.StatusCode, took: time.Since(start)}
}
