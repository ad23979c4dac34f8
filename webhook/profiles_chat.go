package webhook

import (
	"net/http"
	"time"
)

// chatProfiles are chat platforms and networks of people.
func chatProfiles() []Profile {
	list := []Profile{{
		Name: "slack", Row: "V46", Checked: "2026-11-30", Header: "X-Slack-Signature", Prefix: "v0=", Content: "v0:{ts}:{body}", Handshake: HandshakeSlack,
		Time: Time{Header: "X-Slack-Request-Timestamp", Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(signedID(js("/event_id")), signedID(js("/trigger_id")), signedID(Part{Form: "trigger_id"})),
			Type: parts(js("/event/type"), js("/type"), Part{Form: "command"}), Tracks: one(js("/event/channel"), js("/event/event_ts"))},
		Retries: 6 * time.Minute, AnswerWithin: 3 * time.Second, Retention: 8 * day, Attempt: "X-Slack-Retry-Num",
		Note: "retries at once, after 1 and 5 minutes; a retry number is never a reason to drop",
	}, {
		Name: "discord", Row: "V47", Checked: "2026-11-30", Family: FamilyPubkey, SecretForm: FormEd25519, Header: "X-Signature-Ed25519", Content: "{ts}{body}",
		Handshake: HandshakeDiscord, Time: Time{Header: "X-Signature-Timestamp", Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(signedID(js("/id"))), ByBytes: true, Type: parts(js("/event/type"), js("/type")),
			Tracks: []Track{{Version: js("/id")}}},
		Retries: 10 * time.Minute, AnswerWithin: 3 * time.Second, Retention: 8 * day, Note: "events have no id and are known by their bytes; they are answered 204",
	}, {
		Name: "telegram", Row: "V48", Checked: "2026-11-30", Family: FamilyToken, SecretForm: FormToken, Header: "X-Telegram-Bot-Api-Secret-Token",
		Shape: Shape{IDs: ids(looseID(js("/update_id"))), Tracks: telegramTracks()}, Note: "the token proves nothing about the body",
	}, {
		Name: "line", Row: "V49", Checked: "2026-11-30", Header: "x-line-signature", Encoding: EncodingBase64,
		Items: []Items{{At: "/events", Shape: Shape{IDs: ids(signedID(js("/webhookEventId"))), Type: parts(js("/type")),
			Mask: []string{"/deliveryContext/isRedelivery"}, Tracks: one(js("/source/userId"), js("/timestamp"))}}},
		Note: "redelivery is opt-in",
	}, {
		Name: "twitch", Row: "V50", Checked: "2026-11-30", Header: "Twitch-Eventsub-Message-Signature", Prefix: "sha256=", Handshake: HandshakeTwitch,
		Content: "{h:Twitch-Eventsub-Message-Id}{ts}{body}",
		Time:    Time{Header: "Twitch-Eventsub-Message-Timestamp", Unit: UnitRFC3339, Tolerance: 600 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(signedID(head("Twitch-Eventsub-Message-Id"))), Type: parts(head("Twitch-Eventsub-Subscription-Type")),
			Tracks: one(js("/subscription/id"), head("Twitch-Eventsub-Message-Timestamp"))},
		Retries: time.Minute, Retention: 8 * day, Attempt: "Twitch-Eventsub-Message-Retry", Note: "retries within seconds; failures revoke the subscription",
	}, {
		Name: "x", Row: "V52", Checked: "2026-11-30", Header: "x-twitter-webhooks-signature", Prefix: "sha256=", Encoding: EncodingBase64, Handshake: HandshakeX,
		Shape: Shape{ByBytes: true}, AnswerWithin: 10 * time.Second, Note: "again by hand only; events are known by their bytes",
	}}
	return append(list, aliases(Profile{
		Name: "meta", Row: "V51", Checked: "2026-11-30", Header: "X-Hub-Signature-256", Prefix: "sha256=", Handshake: HandshakeMeta,
		Shape: Shape{ByBytes: true},
		Items: []Items{
			{At: "/entry/*/changes/*/value/messages", Shape: Shape{IDs: ids(signedID(js("/id"))), Type: parts(js("/type")), Tracks: one(js("/from"), js("/timestamp"))}},
			{At: "/entry/*/changes/*/value/statuses", Shape: Shape{IDs: ids(signedID(js("/id"), js("/status"))), Type: parts(js("/status")),
				Tracks: one(js("/id"), js("/timestamp"))}},
			{At: "/entry/*/changes", Rest: true, Shape: Shape{ByBytes: true, Type: parts(js("/field"))}},
		},
		Retries: 36 * time.Hour, Note: "changes without messages or statuses are known by their bytes",
	}, "whatsapp")...)
}

// telegramTracks: the chat is in another place for each kind of update.
func telegramTracks() []Track {
	var list []Track
	for _, kind := range []string{"message", "edited_message", "channel_post", "edited_channel_post", "callback_query/message", "my_chat_member",
		"chat_member", "chat_join_request", "message_reaction"} {
		list = append(list, Track{Lane: parts(js("/" + kind + "/chat/id")), Version: js("/update_id"), UnsignedOrder: true})
	}
	return append(list, Track{Version: js("/update_id"), UnsignedOrder: true})
}

func graphProfiles() []Profile {
	return []Profile{{
		Name: "msgraph", Row: "V53", Checked: "2026-11-30", Family: FamilyToken, Handshake: HandshakeGraph, Success: Answer{Status: http.StatusAccepted},
		Items: []Items{{At: "/value", Shape: Shape{IDs: ids(looseID(js("/id"))), ByBytes: true, Type: parts(js("/changeType")),
			Tracks: []Track{{Lane: parts(js("/resource")), UnsignedOrder: true}}}}},
		Retries: 4 * time.Hour, AnswerWithin: 3 * time.Second, Note: "clientState proves nothing about the rest; a notice is a hint to fetch the truth",
	}}
}
