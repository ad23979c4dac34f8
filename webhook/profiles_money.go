package webhook

import "time"

// moneyProfiles are payments and shops.
func moneyProfiles() []Profile {
	adyen := func(field string) Part { return js(adyenItem + field) }
	return []Profile{{
		Name: "stripe", Row: "V45", Checked: "2026-11-30", Family: FamilyList, Header: "Stripe-Signature", Content: "{ts}.{body}",
		List:    List{Separator: ",", Tag: "v1", Time: "t"},
		Time:    Time{Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Shape:   Shape{IDs: ids(signedID(js("/id"))), Type: parts(js("/type")), Tracks: one(js("/data/object/id"), js("/created"))},
		Retries: 3 * day, ByHand: 30 * day, Note: "the whole text of the secret is the key; versions have steps of 1 s, so ties happen",
	}, {
		Name: "shopify", Row: "V54", Checked: "2026-11-30", Header: "X-Shopify-Hmac-Sha256", Encoding: EncodingBase64,
		Shape:   Shape{IDs: ids(looseID(head("X-Shopify-Webhook-Id"))), Type: parts(head("X-Shopify-Topic")), Tracks: one(js("/id"), js("/updated_at"))},
		Retries: 4 * time.Hour, AnswerWithin: 5 * time.Second, Note: "8 retries, then the subscription is removed",
	}, {
		Name: "paypal", Row: "V55", Checked: "2026-11-30", Family: FamilyCert, Header: "PAYPAL-TRANSMISSION-SIG",
		Time:    Time{Header: "PAYPAL-TRANSMISSION-TIME", Unit: UnitRFC3339, Class: TimeUnknown},
		Shape:   Shape{IDs: ids(signedID(js("/id"))), Type: parts(js("/event_type")), Tracks: one(js("/resource/id"), js("/create_time"))},
		Retries: 3 * day, Note: "the secret is the id of the webhook; 25 retries, and by hand",
	}, {
		Name: "square", Row: "V56", Checked: "2026-11-30", Header: "x-square-hmacsha256-signature", Encoding: EncodingBase64, Content: "{url}{body}",
		Shape:   Shape{IDs: ids(signedID(js("/event_id"))), Type: parts(js("/type")), Tracks: one(js("/data/id"), js("/created_at"))},
		Retries: 24 * time.Hour, AnswerWithin: 10 * time.Second,
	}, {
		Name: "adyen", Row: "V57", Checked: "2026-11-30", Family: FamilyAdyen, Header: "HmacSignature", Encoding: EncodingBase64, SecretForm: FormHex,
		Shape: Shape{ByBytes: true, Type: parts(js("/type"))},
		Items: []Items{{At: "/notificationItems", Shape: Shape{
			IDs: ids(signedID(adyen("/pspReference"), adyen("/eventCode"), adyen("/success"))), Type: parts(adyen("/eventCode")),
			Tracks: []Track{{Lane: parts(adyen("/pspReference")), Version: adyen("/eventDate"), UnsignedOrder: true}}}}},
		Success: Answer{Body: "[accepted]", ContentType: "text/plain"}, Retries: 30 * day, AnswerWithin: 10 * time.Second,
		Note: "each payment item carries its own code; eventDate is not covered by it",
	}, {
		Name: "paddle", Row: "V61", Checked: "2026-11-30", Family: FamilyList, Header: "Paddle-Signature", Content: "{ts}:{body}",
		List: List{Separator: ";", Tag: "h1", Time: "ts"},
		Time: Time{Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(signedID(js("/event_id"))), Type: parts(js("/event_type")), Mask: []string{"/notification_id"},
			Tracks: one(js("/data/id"), js("/occurred_at"))},
		Retries: 3 * day, ByHand: 90 * day, AnswerWithin: 5 * time.Second, Retention: 95 * day, Note: "60 retries",
	}, {
		Name: "razorpay", Row: "V67", Checked: "2026-11-30", Header: "X-Razorpay-Signature",
		Shape: Shape{IDs: ids(looseID(head("x-razorpay-event-id"))), Type: parts(js("/event")),
			Tracks: one(js("/payload/payment/entity/id"), js("/created_at"))},
		Retries: 24 * time.Hour,
	}}
}
