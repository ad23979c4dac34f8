package demo

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Names are the scenes in the order in which they are played.
func Names() []string { return []string{"lost", "double", "changed", "crash"} }

// Story is what happens in a scene, in a sentence.
func Story(scene string) string {
	switch scene {
	case "lost":
		return "the answer is lost on the wire, and the client asks again"
	case "double":
		return "two clicks at once"
	case "changed":
		return "the same key with another amount"
	case "crash":
		return "the service is killed after the charge, and the client asks again"
	}
	return ""
}

// Outcome is one scene, played.
type Outcome struct {
	Scene    string
	Request  string // what was asked
	Intents  int    // how many charges there should be
	Bare     Side
	Guarded  Side
	Library  *Side // scene crash: the same with the library's atomic guard
	Verdicts []string
}

// Side is what one of the services did.
type Side struct {
	Charges int
	Total   int64    // cents
	Answers []string // statuses and verdicts, repeated refusals once
}

// OK says whether the claim holds: guarded has one charge per intent, and in every scene but changed bare has more.
func (o Outcome) OK() bool {
	if o.Guarded.Charges != o.Intents || o.Library != nil && o.Library.Charges != o.Intents {
		return false
	}
	return o.Scene == "changed" || o.Bare.Charges > o.Intents
}

// Play plays one scene on both services.
func (s *Stage) Play(ctx context.Context, scene string) (o Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	key := fmt.Sprintf("demo-%s-%06x", scene, s.random.Uint32()&0xffffff)
	amount := int64(100 * (5 + s.random.IntN(95)))
	o = Outcome{Scene: scene, Intents: 1, Request: fmt.Sprintf("POST /v1/payments  %s  Idempotency-Key: %s", cents(amount), key)}
	bare := request{url: "http://" + s.bareWire.address(), key: key, amount: amount}
	guarded := request{url: "http://" + s.gatewayWire.address(), key: key, amount: amount}
	var a, b []attempt
	switch scene {
	case "lost":
		s.bareWire.lose()
		a = bare.persist(ctx, nil)
		s.gatewayWire.lose()
		b = guarded.persist(ctx, nil)
	case "double":
		bare.header, guarded.header = togetherHeader, togetherHeader
		a, b = twice(ctx, bare), twice(ctx, guarded)
	case "changed":
		a, b = changed(ctx, bare), changed(ctx, guarded)
	case "crash":
		bare.header, guarded.header = crashHeader, crashHeader
		var failed error
		a = bare.persist(ctx, func() { failed = join(failed, s.revive(&s.bare, "bare")) })
		b = guarded.persist(ctx, func() { failed = join(failed, s.revive(&s.behind, "guarded")) })
		if o.Library, err = s.library(ctx, key, amount); join(err, failed) != nil {
			return o, join(err, failed)
		}
	default:
		return o, fmt.Errorf("no scene %q", scene)
	}
	o.Verdicts = words(b)
	if o.Bare, err = s.side("bare", key, a); err == nil {
		o.Guarded, err = s.side("guarded", key, b)
	}
	if err == nil {
		err = ctx.Err()
	}
	return o, err
}

func join(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (s *Stage) side(ledger, ref string, tries []attempt) (Side, error) {
	charges, err := s.charges(ledger, ref)
	side := Side{Charges: len(charges), Answers: answers(tries)}
	for _, c := range charges {
		side.Total += c.Amount
	}
	return side, err
}

// answers are the tries as a person would read them.
func answers(tries []attempt) (out []string) {
	for _, a := range tries {
		text := "no answer"
		if a.status != 0 {
			text = fmt.Sprint(a.status)
			if a.verdict != "" {
				text += " " + a.verdict
			}
		}
		if len(out) == 0 || a.final() || out[len(out)-1] != text {
			out = append(out, text)
		}
	}
	return out
}

// twice clicks twice at once, and lists the answer of the click that ran first.
func twice(ctx context.Context, r request) []attempt {
	var both [2]attempt
	var wg sync.WaitGroup
	for i := range both {
		wg.Go(func() {
			tries := r.persist(ctx, nil)
			both[i] = tries[len(tries)-1]
		})
	}
	wg.Wait()
	if both[1].verdict == "executed" {
		both[0], both[1] = both[1], both[0]
	}
	return both[:]
}

// changed sends another amount under the same key.
func changed(ctx context.Context, r request) []attempt {
	tries := r.persist(ctx, nil)
	r.amount *= 2
	return append(tries, r.persist(ctx, nil)...)
}

// library plays the crash on a service that uses the library's atomic guard: the transaction rolls back, and the retry runs.
func (s *Stage) library(ctx context.Context, key string, amount int64) (*Side, error) {
	c := Child{Kind: "library", Dir: s.dir, Listen: "127.0.0.1:0"}
	p, err := s.start.start(c)
	if err != nil {
		return nil, err
	}
	defer func() { p.stop() }()
	var failed error
	r := request{url: "http://" + p.address, key: key, amount: amount, header: crashHeader}
	tries := r.persist(ctx, func() {
		select {
		case <-p.exited:
			c.Listen = p.address
			again, err := s.start.start(c)
			if failed = join(failed, err); err == nil {
				p = again
			}
		default:
		}
	})
	if failed != nil {
		return nil, failed
	}
	n, err := countAtomic(ctx, s.dir, key)
	return &Side{Charges: n, Total: int64(n) * amount, Answers: answers(tries)}, err
}

func cents(n int64) string { return fmt.Sprintf("%d.%02d EUR", n/100, n%100) }
