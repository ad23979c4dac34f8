package httppublish

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo/internal/safedial"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/webhook"
)

// Options of a Publisher. A URL, or one per topic, is required.
type Options struct {
	// URL of the events whose topic is not in Topics.
	URL string
	// Topics has the URL of a topic.
	Topics map[string]string
	// Header goes along with every request, such as an authorization. It overrides nothing that the publisher sets.
	Header http.Header
	// Signing are the secrets of Standard Webhooks; each active one signs. None: requests are not signed.
	Signing []webhook.Secret
	// Allow are networks that may be reached besides public ones, and Ports the ports; none: 80 and 443.
	Allow []netip.Prefix
	Ports []int
	// TLS is used for https; nil: the system's authorities.
	TLS *tls.Config
	// Timeout bounds one request with its answer. Default 20s.
	Timeout time.Duration
	// Concurrency is how many requests are under way at once; more wait. Default 32.
	Concurrency int
}

// Publisher publishes events to HTTP targets. It is safe for concurrent use.
type Publisher struct {
	o      Options
	client *http.Client
	signer *webhook.Signer
	room   chan struct{}
}

// New returns a publisher. The error lists every mistake of o; it shows no secret and no URL. New sends nothing.
func New(o Options) (*Publisher, error) {
	signer, err := webhook.NewSigner(o.Signing...)
	errs := []error{err}
	if o.URL == "" && len(o.Topics) == 0 {
		errs = append(errs, errors.New("URL, or a URL per topic, is required"))
	}
	check := func(name, text string) {
		switch u, err := url.Parse(text); {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			errs = append(errs, errors.New(name+" is no http or https URL"))
		case u.User != nil:
			errs = append(errs, errors.New(name+" has credentials: put them into Header"))
		}
	}
	if o.URL != "" {
		check("URL", o.URL)
	}
	for topic, text := range o.Topics {
		check(fmt.Sprintf("Topics[%q]", topic), text)
	}
	if o.Timeout < 0 || o.Concurrency < 0 {
		errs = append(errs, errors.New("a negative Timeout or Concurrency"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("httppublish: %w", err)
	}
	o.Timeout = cmp.Or(o.Timeout, 20*time.Second)
	o.Concurrency = cmp.Or(o.Concurrency, 32)
	client := safedial.NewClient(safedial.Options{Timeout: o.Timeout, TLS: o.TLS, Dialer: safedial.Dialer{Allow: slices.Clone(o.Allow), Ports: slices.Clone(o.Ports)}})
	return &Publisher{o: o, client: client, signer: signer, room: make(chan struct{}, o.Concurrency)}, nil
}

// Close closes connections that are not in use. A later Publish opens new ones.
func (p *Publisher) Close() { p.client.CloseIdleConnections() }

// Destination implements outbox.Destiner: it is the topic's URL.
func (p *Publisher) Destination(topic string) string { return cmp.Or(p.o.Topics[topic], p.o.URL) }

// Publish implements outbox.Publisher. An event is done when its target has answered 2xx. What other answers mean:
//
//	409                                   outbox.Later
//	429, nothing was sent                 outbox.Unavailable
//	408, 425, 5xx, sent and no answer     outbox.Unanswered
//	410, 3xx                              outbox.Refused
//	other 4xx                             a failure that counts
//
// Retry-After is obeyed up to an hour. A topic without a URL is outbox.NoRoute; an address that is not allowed is
// outbox.Unavailable, so that nothing is lost to a wrong setting. A request is never sent again by the client itself.
func (p *Publisher) Publish(ctx context.Context, b outbox.PublishParams) {
	for i := range b.Events {
		select {
		case p.room <- struct{}{}:
		case <-ctx.Done():
			b.Done(i, outbox.Unavailable(context.Cause(ctx)))
			continue
		}
		go func() { // ends after Options.Timeout at the latest
			defer func() { <-p.room }()
			b.Done(i, p.send(ctx, &b.Events[i]))
		}()
	}
}

// send is one attempt.
func (p *Publisher) send(ctx context.Context, d *outbox.Delivery) error {
	target := p.Destination(d.Topic)
	if target == "" {
		return outbox.NoRoute(errors.New("httppublish: no URL for the topic"))
	}
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	// A body that cannot be read twice keeps the transport from sending again what it may have sent.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, io.NopCloser(bytes.NewReader(d.Payload)))
	if err != nil {
		return outbox.Refused(fmt.Errorf("httppublish: %w", safedial.Bare(err)))
	}
	req.ContentLength = int64(len(d.Payload))
	req.Header = p.headers(d, time.Now())
	res, err := p.client.Do(req)
	if err != nil {
		err = fmt.Errorf("httppublish: %w", safedial.Bare(err))
		if wrote.Load() {
			return outbox.Unanswered(fmt.Errorf("%w; the target may have acted", err))
		}
		return outbox.Unavailable(err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body) // at most 64 KiB; the connection is used again if that was all
	return answered(res)
}

// answered is the table of what a target says.
func answered(res *http.Response) error {
	failed := fmt.Errorf("httppublish: the target answered %d", res.StatusCode)
	switch status := res.StatusCode; {
	case status/100 == 2:
		return nil
	case status == http.StatusConflict:
		failed = outbox.Later(failed)
	case status == http.StatusGone, status/100 == 3:
		return outbox.Refused(failed)
	case status == http.StatusTooManyRequests:
		failed = outbox.Unavailable(failed)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status/100 == 5:
		failed = outbox.Unanswered(failed)
	}
	if d, ok := safedial.RetryAfter(res.Header, time.Now()); ok {
		return outbox.After(d, failed)
	}
	return failed
}
