package webhook

import (
	"net/http"
	"time"
)

// mailProfiles are senders of mail and text messages, customer systems, and message buses.
func mailProfiles() []Profile {
	return []Profile{{
		Name: "twilio", Row: "V58", Checked: "2026-11-30", Family: FamilyTwilio, Alg: AlgSHA1, Header: "X-Twilio-Signature", Encoding: EncodingBase64,
		Shape: Shape{IDs: ids(looseID(head("I-Twilio-Idempotency-Token")), signedID(Part{Form: "MessageSid"}, Part{Form: "MessageStatus"})),
			Type: parts(Part{Form: "MessageStatus"}, Part{Form: "CallStatus"}), Tracks: []Track{
				{Lane: parts(Part{Form: "MessageSid"}), Version: Part{Form: "MessageStatus"},
					Ranks: []string{"accepted", "scheduled", "queued", "sending", "sent", "delivered", "undelivered", "failed", "read"}},
				{Lane: parts(Part{Form: "CallSid"}), Version: Part{Form: "CallStatus"},
					Ranks: []string{"queued", "initiated", "ringing", "in-progress", "completed", "busy", "failed", "no-answer", "canceled"}},
			}},
		Success: Answer{Status: http.StatusOK, ContentType: "text/xml", Body: "<Response/>"}, AnswerWithin: 15 * time.Second, SameBytes: "run",
		Note: "no retry unless asked for; the auth token is that of the (sub)account",
	}, {
		Name: "sendgrid", Row: "V59", Checked: "2026-11-30", Family: FamilyPubkey, SecretForm: FormSPKI, Header: "X-Twilio-Email-Event-Webhook-Signature",
		Content: "{ts}{body}", Time: Time{Header: "X-Twilio-Email-Event-Webhook-Timestamp", Class: TimeUnknown},
		Items: []Items{{At: "", Shape: Shape{IDs: ids(signedID(js("/sg_event_id"))), Type: parts(js("/event")),
			Tracks: one(js("/sg_message_id"), js("/timestamp"))}}},
		Retries: 24 * time.Hour, Note: "the secret is the public key; many copies are usual",
	}, {
		Name: "mailgun", Row: "V60", Checked: "2026-11-30", Family: FamilyMailgun,
		Time: Time{JSON: "/signature/timestamp", Tolerance: 9 * time.Hour, Class: TimeUnknown},
		Shape: Shape{IDs: ids(signedID(js("/signature/token")), looseID(js("/event-data/id"))), Type: parts(js("/event-data/event")),
			Mask: []string{"/signature"}},
		Retries: 8 * time.Hour, Retention: 8 * day, Note: "the code does not cover the event; unparsable bodies are answered 406",
	}, {
		Name: "aws-sns", Row: "V64", Checked: "2026-11-30", Family: FamilyCert, SecretForm: FormNone, Handshake: HandshakeSNS,
		Time:    Time{JSON: "/Timestamp", Unit: UnitRFC3339, Class: TimePerEvent},
		Shape:   Shape{IDs: ids(signedID(js("/MessageId"))), Type: parts(js("/Type"))},
		Retries: time.Hour, AnswerWithin: 15 * time.Second, Note: "no secret: topics lists the accepted ARNs; the event is /Message",
	}, {
		Name: "hubspot", Row: "V65", Checked: "2026-11-30", Family: FamilyHubSpot, Header: "X-HubSpot-Signature-v3", Encoding: EncodingBase64,
		Time: Time{Header: "X-HubSpot-Request-Timestamp", Unit: UnitMilliseconds, Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Items: []Items{{At: "", Shape: Shape{IDs: ids(signedID(js("/eventId"), js("/subscriptionId"), js("/objectId"), js("/occurredAt"))),
			Type: parts(js("/subscriptionType")), Mask: []string{"/attemptNumber"}, Tracks: one(js("/objectId"), js("/occurredAt"))}}},
		Retries: 24 * time.Hour, Note: "versions 1 and 2 carry no time; min_version refuses them",
	}}
}
