package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Signer signs what is sent by Standard Webhooks, with every secret that is active: a receiver may have either of two
// while they are rotated. It is safe for concurrent use.
type Signer struct{ keys []*key }

// NewSigner reads the secrets: whsec_ and base64 of 24 to 64 bytes. The error names every one that cannot be used, never
// its value. Without secrets a Signer only names id and time.
func NewSigner(secrets ...Secret) (*Signer, error) {
	s := &Signer{}
	var errs []error
	for i, secret := range secrets {
		k, err := readKey(secret, FormStandard, AlgSHA256)
		if err != nil || k.macs == nil {
			errs = append(errs, fmt.Errorf("signing[%d] %s: %s: give whsec_ and base64 of 24 to 64 bytes", i, secret.id, problemOf(err)))
			continue
		}
		s.keys = append(s.keys, k)
	}
	return s, errors.Join(errs...)
}

// Sign sets webhook-id, webhook-timestamp and, where a secret is active at that time, webhook-signature in h. The id must
// be that of the message on every attempt; at must be the time of this one.
func (s *Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	ts := strconv.FormatInt(at.Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", ts)
	var codes []string
	for _, k := range s.keys {
		if k.ended(at) {
			continue
		}
		state := k.macs.Get().(*macState)
		state.write(&signed{standardContent(), []string{id, ".", ts, ".", ""}, body})
		codes = append(codes, "v1,"+base64.StdEncoding.EncodeToString(state.sum))
		k.macs.Put(state)
	}
	if len(codes) > 0 {
		h.Set("Webhook-Signature", strings.Join(codes, " "))
	}
}
