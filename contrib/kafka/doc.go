// Package idemkafka consumes Kafka topics through an inbox: each record has one effect, however often it is delivered,
// and its offset is committed after the effect.
//
//	in, err := inbox.New(engine, inbox.Options{Subscriber: "billing"})
//	err = idemkafka.Consume(ctx, []kgo.Opt{
//		kgo.SeedBrokers("kafka:9092"), kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"),
//		kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
//	}, in, func(ctx context.Context, m inbox.Message) error {
//		return addInvoice(ctx, postgres.Tx(ctx), m.Body)
//	}, idemkafka.Options{})
//
// A record's identity is its CloudEvents id and source, else what inbox.Options.Identify says; its lane is its key. Kafka
// counts no deliveries: the inbox keeps a mark per partition, so that a record that kills its process is known to have
// been started before, at one write per batch.
//
// Layer: contrib. It imports the exported packages of the root module and franz-go.
package idemkafka
