package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

// verification compares the verification of a 2 KiB callback with the HMAC that it cannot do without.
func verification(ctx context.Context, s settings) ([]result, error) {
	body := bytes.Repeat([]byte("x"), 2048)
	now := time.Unix(1_800_000_000, 0)
	var out []result
	for _, provider := range []string{"github", "stripe", "standard-webhooks"} {
		secret := "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		source := webhook.Source{Name: "bench", Provider: provider, Secrets: []webhook.Secret{webhook.FromText("1", secret)}}
		v, err := webhook.NewVerifier(source)
		if err != nil {
			return nil, err
		}
		signed, err := webhook.Sign(source, webhook.SignParams{Body: body, ID: "1", At: now})
		if err != nil {
			return nil, err
		}
		good := signed.Request()
		bad := good
		bad.Body = append(bytes.Clone(body[1:]), 'y')
		want := hmacOf(secret, body)
		rates, err := compare(ctx, s, 1,
			contender{"bare HMAC", func(context.Context, int64) error {
				if !hmac.Equal(hmacOf(secret, body), want) {
					return fmt.Errorf("another code")
				}
				return nil
			}},
			contender{"accepted", func(context.Context, int64) error {
				_, err := webhook.Verify(v, good, now)
				return err
			}},
			contender{"refused", func(context.Context, int64) error {
				if _, err := webhook.Verify(v, bad, now); err == nil {
					return fmt.Errorf("a changed body is accepted")
				}
				return nil
			}})
		if err != nil {
			return nil, err
		}
		time1, time2 := ratio(rates[0], rates[1]), ratio(rates[1], rates[2])
		allocs := testing.AllocsPerRun(500, func() { _, _ = webhook.Verify(v, good, now) })
		out = append(out,
			result{"W52", "webhook: time to verify 2 KiB of " + provider + " ÷ its bare HMAC", time1, "", "≤ 2", time1 <= 2,
				fmt.Sprintf("bare HMAC %.0f/s · verified %.0f/s · refused %.0f/s", median(rates[0]), median(rates[1]), median(rates[2]))},
			result{"W52", "the same: time of a refusal ÷ that of an acceptance", time2, "", "≤ 1", time2 <= 1.05, "within 5 % of 1 is taken for equal"},
			result{"W52", "the same: allocations of a verification", allocs, "allocations", "≤ 10", allocs <= 10, ""})
	}
	return out, nil
}

func hmacOf(secret string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(body)
	return h.Sum(nil)
}
