// Package idemwatermill gives the messages of a Watermill router one effect each, by an inbox.
//
//	in, err := inbox.New(engine, inbox.Options{Subscriber: "billing", Source: "orders"})
//	router.AddMiddleware(idemwatermill.Middleware(in))
//	router.AddConsumerHandler("billing", "orders", subscriber, func(msg *message.Message) error {
//		return addInvoice(msg.Context(), postgres.Tx(msg.Context()), msg.Payload)
//	})
//
// A failing message is the subscriber's to deliver again: its error goes to the router, its starts are counted, and after
// inbox.Options.MaxAttempts it is dead and acknowledged. A Retry middleware belongs outside of this one, added before it.
//
// Layer: contrib. It imports the exported packages of the root module and Watermill.
package idemwatermill
