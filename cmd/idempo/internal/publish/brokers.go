package publish

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	idemnats "github.com/idempo/idempo/contrib/nats"
	idemrabbitmq "github.com/idempo/idempo/contrib/rabbitmq"
)

// openNATS makes a connection that is tried for ever, so that a server that is away is no error.
func openNATS(u *url.URL) (Destination, error) {
	prefix := u.Query().Get("prefix")
	o := nats.GetDefaultOptions()
	o.Name, o.RetryOnFailedConnect, o.MaxReconnect, o.AllowReconnect = "idempo relay", true, -1, true
	o.ReconnectJitter, o.ReconnectJitterTLS = time.Second, time.Second
	o.ReconnectBufSize = -1 // what is not sent is told so, and not sent later
	if u.User != nil {
		o.User = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	scheme := u.Scheme + "://"
	if u.Query().Get("tls") == "true" {
		o.Secure, scheme = true, "tls://"
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		o.Servers = append(o.Servers, scheme+host)
	}
	conn, err := o.Connect()
	if err != nil {
		return Destination{}, errors.New("the connection to NATS cannot be set up") // its text may hold the address
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return Destination{}, errors.New("JetStream cannot be set up")
	}
	return Destination{idemnats.NewPublisher(js, idemnats.PublisherOptions{Prefix: prefix}), func(context.Context) { conn.Close() }}, nil
}

// openRabbitMQ makes a publisher that dials when there is something to publish.
func openRabbitMQ(u *url.URL) Destination {
	exchange := u.Query().Get("exchange")
	at := *u
	at.RawQuery = ""
	p := idemrabbitmq.NewPublisher(idemrabbitmq.Dial(at.String()), idemrabbitmq.PublisherOptions{Exchange: exchange})
	return Destination{p, func(context.Context) { p.Close() }}
}
