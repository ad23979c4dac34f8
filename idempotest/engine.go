package idempotest

import (
	"context"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// Engine returns an engine over s with the operations declared, under a digest key for tests. At the end of the test it
// is drained; a claim that nobody settled fails the test.
func Engine(t testing.TB, s idempo.Store, ops ...idempo.Operation) *idempo.Engine {
	t.Helper()
	e := EngineWith(t, s, idempo.Config{Operations: ops})
	t.Cleanup(func() { drained(t, e) })
	return e
}

// EngineWith is Engine with a configuration, whose DigestKeys may be empty. It is not drained.
func EngineWith(t testing.TB, s idempo.Store, c idempo.Config) *idempo.Engine {
	t.Helper()
	if len(c.DigestKeys) == 0 {
		c.DigestKeys = []idempo.Secret{{ID: "test", Value: []byte("a digest key for tests, no secret")}}
	}
	e, err := idempo.New(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// drained wants e to have nothing left that is not settled.
func drained(t testing.TB, e *idempo.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if left := e.Drain(ctx); left > 0 {
		t.Errorf("idempotest: %d claims are not settled", left)
	}
}

// UntilAnswered calls call again as a client would, until it returns nil or an error that is final: one that
// idempo.Retryable says no to. It does not wait between the calls. Too many calls fail the test.
func UntilAnswered(t testing.TB, call func() error) error {
	t.Helper()
	var err error
	for range 1000 {
		if err = call(); err == nil {
			return nil
		}
		if _, again := idempo.Retryable(err); !again {
			return err
		}
	}
	t.Fatalf("idempotest: no answer after 1000 calls: %v", err)
	return err
}
