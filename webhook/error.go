package webhook

import (
	"errors"
	"fmt"
)

// Reason is the stable word for a refusal; metrics and logs use it.
type Reason string

// The reasons of a refusal.
const (
	ReasonMissingHeader       Reason = "missing_header"
	ReasonDuplicateHeader     Reason = "duplicate_header"
	ReasonMalformedHeader     Reason = "malformed_header"
	ReasonUnknownVersion      Reason = "unknown_version"
	ReasonMalformedTime       Reason = "malformed_time"
	ReasonTooOld              Reason = "too_old"
	ReasonTooNew              Reason = "too_new"
	ReasonAmbiguousID         Reason = "ambiguous_id"
	ReasonMismatch            Reason = "mismatch"
	ReasonWrongToken          Reason = "wrong_token"
	ReasonCertURLRefused      Reason = "cert_url_refused"
	ReasonCertInvalid         Reason = "cert_invalid"
	ReasonSubscribeURLRefused Reason = "subscribe_url_refused"
	ReasonNoSecret            Reason = "no_secret"
	ReasonPanic               Reason = "panic"
)

// ErrCertificate is in the error of [Verify] when a certificate could not be fetched. It is not a refusal: the sender may
// be who it says it is, and should be asked to come again (503).
var ErrCertificate = errors.New("certificate not reachable")

// Error is a refusal. Its text names the source, the reason and the place, never a secret, a token or an expected code.
type Error struct {
	Source string
	Reason Reason
	Err    error // what was looked at, for the operator; may be nil
}

// Error gives "webhook source: reason: detail".
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("webhook %s: %s", e.Source, e.Reason)
	}
	return fmt.Sprintf("webhook %s: %s: %v", e.Source, e.Reason, e.Err)
}

// Unwrap gives the detail.
func (e *Error) Unwrap() error { return e.Err }

// refusal is an Error before the source is known. It is a value, so that a refusal costs one allocation.
type refusal struct {
	reason Reason
	detail string
}

func (r *refusal) Error() string { return r.detail }

func refuse(reason Reason, detail string) error { return &refusal{reason, detail} }
