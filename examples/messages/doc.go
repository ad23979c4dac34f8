// Messages bills each message once: it reads deliveries as a broker would make them, one JSON object per line, and says
// what becomes of each. The bill, the message's identity and its outcome commit in one transaction of an SQLite file.
//
//	echo '{"id":"m-1","body":"order 81"}' | go run ./examples/messages messages.db
package main
