// Payments is a service whose POST /v1/payments may be repeated by anyone without a second payment: key, payment and
// answer commit in one transaction of its SQLite file.
//
//	go run ./examples/payments
//	curl -i -H 'Idempotency-Key: order-81' -H 'X-Account: acct_7' -d '{"amount":1200}' 127.0.0.1:8088/v1/payments
package main
