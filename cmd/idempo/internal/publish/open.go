package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/idempo/idempo/cmd/idempo/internal/spell"
	"github.com/idempo/idempo/httppublish"
	"github.com/idempo/idempo/outbox"
)

// Options are what a destination gets besides its address.
type Options struct {
	Out    io.Writer    // of stdout:
	Logger *slog.Logger // nil: none
	// Allow are networks that http destinations may be in besides public ones, and Ports their ports; none: 80 and 443.
	Allow []string
	Ports []int
	// Broken is told when what stdout: writes to is gone. It must not block.
	Broken func(error)
}

// Destination is an open publisher.
type Destination struct {
	outbox.Publisher
	Close func(ctx context.Context) // after the relay has stopped
}

// Schemes are those that Open knows.
func Schemes() []string {
	return []string{"nats", "kafka", "amqp", "amqps", "http", "https", "stdout", "null"}
}

// Check says what is wrong with an address, before anything is opened. No part of it but its scheme is told.
func Check(to string) error {
	scheme, rest, ok := strings.Cut(to, ":")
	switch {
	case to == "":
		return errors.New("where to is required, as in stdout: or nats://HOST:4222")
	case !ok || !slices.Contains(Schemes(), scheme):
		text := "not a destination"
		if near := spell.Nearest(scheme, Schemes()); near != "" && ok {
			text += "; did you mean " + near + ":?"
		}
		return fmt.Errorf("%s; known are: nats:// kafka:// amqp:// amqps:// http:// https://, and stdout: or null: alone", text)
	case scheme == "stdout", scheme == "null":
		if rest != "" {
			return fmt.Errorf("%s: takes nothing behind the colon", scheme)
		}
		return nil
	case scheme == "kafka":
		return errors.New("kafka: not in this version of the binary; contrib/kafka publishes from Go")
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		return fmt.Errorf("not a %s address: write %s://HOST:PORT", scheme, scheme)
	}
	known := map[string][]string{"nats": {"prefix", "tls"}, "amqp": {"exchange"}, "amqps": {"exchange"}}[scheme]
	for name := range u.Query() {
		if known != nil && !slices.Contains(known, name) {
			return fmt.Errorf("%s: unknown setting ?%s=; known are: %s", scheme, name, strings.Join(known, " "))
		}
	}
	return nil
}

// Open opens a destination. It does not wait for a server: a broker that is away is asked again by the relay.
func Open(ctx context.Context, to string, o Options) (Destination, error) {
	if err := Check(to); err != nil {
		return Destination{}, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	scheme, _, _ := strings.Cut(to, ":")
	switch scheme {
	case "stdout":
		return Destination{&lines{out: o.Out, broken: o.Broken}, func(context.Context) {}}, nil
	case "null":
		return Destination{null{}, func(context.Context) {}}, nil
	}
	u, err := url.Parse(to)
	if err != nil {
		return Destination{}, errors.New("not an address")
	}
	switch scheme {
	case "nats":
		return openNATS(u)
	case "amqp", "amqps":
		return openRabbitMQ(u), nil
	case "http", "https":
		p, err := httppublish.New(httppublish.Options{URL: to, Allow: networks(o.Allow), Ports: o.Ports})
		if err != nil {
			return Destination{}, err
		}
		return Destination{p, func(context.Context) { p.Close() }}, nil
	}
	return Destination{}, fmt.Errorf("%s destinations are not in this version", scheme)
}

// networks reads what the configuration has checked: networks and single addresses.
func networks(all []string) (out []netip.Prefix) {
	for _, text := range all {
		if n, err := netip.ParsePrefix(text); err == nil {
			out = append(out, n)
		} else if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// null takes everything.
type null struct{}

// Publish implements outbox.Publisher.
func (null) Publish(_ context.Context, p outbox.PublishParams) {
	for i := range p.Events {
		p.Done(i, nil)
	}
}

// KeepsOrder implements outbox.Orderer.
func (null) KeepsOrder() bool { return true }
