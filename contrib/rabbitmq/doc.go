// Package idemrabbitmq consumes RabbitMQ queues through an inbox: each message has one effect, however often it is
// delivered, and is acknowledged after the commit.
//
//	in, err := inbox.New(engine, inbox.Options{Subscriber: "billing"})
//	err = idemrabbitmq.Consume(ctx, idemrabbitmq.Dial("amqp://127.0.0.1"), in, func(ctx context.Context, m inbox.Message) error {
//		return addInvoice(ctx, postgres.Tx(ctx), m.Body)
//	}, idemrabbitmq.Options{Queue: "billing"})
//
// A message's identity is its CloudEvents id and source, else its message-id in its queue. Nothing is rejected or
// requeued: a message that fails is stored by the inbox and acknowledged, and one that cannot be decided, because the
// store is away, stays unacknowledged until it can. So a queue with a delivery limit (20 on quorum queues since RabbitMQ
// 4.0) drops nothing.
//
// Layer: contrib. It imports the exported packages of the root module and amqp091-go.
package idemrabbitmq
