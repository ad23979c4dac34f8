package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	_ "modernc.org/sqlite"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/sqlite"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: messages FILE < deliveries")
	}
	secret := []byte("32 bytes from your secret store.") // with another one every known message looks new
	if err := consume(context.Background(), os.Args[1], secret, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// delivery is a line of the input.
type delivery struct {
	ID, Body string
	Attempt  int // which delivery it is, 0 if the broker does not say
}

func consume(ctx context.Context, path string, secret []byte, from io.Reader, to io.Writer) error {
	in, err := open(ctx, path, secret)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var d delivery
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return err
		}
		out, err := handle(ctx, in, d)
		if err != nil {
			return err // nothing is decided: do not acknowledge
		}
		_, _ = fmt.Fprintf(to, "%s: %s, acknowledge: %v\n", d.ID, out.Status, out.Ack)
	}
	n, err := in.Once(ctx, bill) // a service that keeps running calls go in.Work(ctx, bill)
	_, _ = fmt.Fprintf(to, "%d tried again\n", n)
	return err
}

// region: inbox
func open(ctx context.Context, path string, secret []byte) (*inbox.Inbox, error) {
	store, err := sqlite.Open(ctx, "sqlite", path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: secret}}})
	if err != nil {
		return nil, err
	}
	return inbox.New(engine, inbox.Options{Subscriber: "billing", BackoffBase: 1, BackoffMax: 1})
}

func handle(ctx context.Context, in *inbox.Inbox, d delivery) (inbox.Outcome, error) {
	return in.Handle(ctx, inbox.Message{Source: "orders", ID: d.ID, Body: []byte(d.Body), Attempt: d.Attempt}, bill)
}

func bill(ctx context.Context, m inbox.Message) error {
	tx := sqlite.Tx(ctx) // the bill commits together with the fact that the message was handled
	if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS bills (id INTEGER PRIMARY KEY, text TEXT NOT NULL)`); err != nil {
		return err
	}
	if len(m.Body) == 0 {
		return inbox.Permanent(errors.New("nothing to bill"))
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO bills (text) VALUES (?)`, string(m.Body))
	return err
}

// end: inbox
