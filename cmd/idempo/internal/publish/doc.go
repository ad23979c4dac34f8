// Package publish opens the destinations of relays: what --to and relays.to name. A text before the first colon says which:
//
//	stdout:             one CloudEvents JSON object per line
//	null:               nowhere; for measuring, and for throwing away
//	nats://H[?prefix=P] JetStream; the subject is P and the topic
//	kafka://H,H         the topic is the topic
//	amqp://H/V?exchange=E, amqps://…  the routing key is the topic
//	http://…, https://… one URL; the host must not be a private one
//
// Layer: cmd.
package publish
