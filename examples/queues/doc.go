// Package queues shows how to consume and publish with queues that idempo has no adapter for: Amazon SQS and Google
// Pub/Sub, each in one file over inbox.Feed and outbox.Publisher. The interfaces name the few calls that are needed; the
// vendor's client fits them with a line or two each.
package queues
