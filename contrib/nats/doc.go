// Package idemnats consumes NATS JetStream through an inbox: each message has one effect, however often it is delivered,
// and is acknowledged after the commit.
//
//	in, err := inbox.New(engine, inbox.Options{Subscriber: "billing"})
//	err = idemnats.Consume(ctx, consumer, in, func(ctx context.Context, m inbox.Message) error {
//		return addInvoice(ctx, postgres.Tx(ctx), m.Body)
//	}, idemnats.Options{Stream: stream})
//
// A message's identity is its CloudEvents id and source, else its Nats-Msg-Id in its stream. The consumer must have
// explicit acknowledgement and no MaxDeliver: the server would drop what it has delivered that often, and the inbox
// counts starts itself.
//
// Layer: contrib. It imports the exported packages of the root module and nats.go.
package idemnats
