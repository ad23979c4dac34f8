package webhook

import "time"

// codeProfiles are hosts of code and what builds it.
func codeProfiles() []Profile {
	list := []Profile{{
		Name: "github", Row: "V41", Checked: "2026-11-30", Header: "X-Hub-Signature-256", Prefix: "sha256=",
		Shape: Shape{IDs: ids(looseID(head("X-GitHub-Delivery"))), Type: parts(head("X-GitHub-Event")), Tracks: []Track{
			{Lane: parts(js("/pull_request/id")), Version: js("/pull_request/updated_at")},
			{Lane: parts(js("/issue/id")), Version: js("/issue/updated_at")},
			{Lane: parts(js("/workflow_run/id")), Version: js("/workflow_run/updated_at")},
			{Lane: parts(js("/check_run/id")), Version: js("/check_run/updated_at")},
			{Lane: parts(js("/repository/id"), js("/ref"))},
		}},
		ByHand: 3 * day, AnswerWithin: 10 * time.Second, MaxBody: 25 << 20, Note: "no automatic retry; self-hosted: by hand for 7 days",
	}, {
		Name: "gitlab", Row: "V42", Checked: "2026-11-30", Family: FamilyToken, SecretForm: FormGitLab, Header: "X-Gitlab-Token",
		Time: Time{Header: "webhook-timestamp", Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(signedID(head("webhook-id")), looseID(head("Idempotency-Key"))), Type: parts(head("X-Gitlab-Event")),
			Tracks: []Track{{Lane: parts(js("/object_attributes/id")), Version: js("/object_attributes/updated_at")}}},
		AnswerWithin: 10 * time.Second, Note: "a signing token is checked as Standard Webhooks; 4 failures disable the hook, a 4xx for good",
	}, {
		Name: "bitbucket", Row: "V43", Checked: "2026-11-30", Header: "X-Hub-Signature", Prefix: "sha256=",
		Shape:        Shape{IDs: ids(looseID(head("X-Request-UUID"))), Type: parts(head("X-Event-Key")), Tracks: one(js("/repository/uuid"), Part{})},
		AnswerWithin: 10 * time.Second, Attempt: "X-Attempt-Number", Note: "2 more attempts on a 5xx",
	}, {
		Name: "bitbucket-server", Row: "V43", Checked: "2026-11-30", Header: "X-Hub-Signature", Prefix: "sha256=",
		Shape:        Shape{IDs: ids(looseID(head("X-Request-Id"))), Type: parts(head("X-Event-Key")), Tracks: one(js("/repository/id"), Part{})},
		AnswerWithin: 10 * time.Second,
	}, {
		Name: "circleci", Row: "V68", Checked: "2026-11-30", Family: FamilyList, Header: "circleci-signature", List: List{Separator: ",", Tag: "v1"},
		Shape: Shape{IDs: ids(signedID(js("/id"))), Type: parts(js("/type")), Tracks: one(js("/pipeline/id"), js("/happened_at"))},
	}}
	for _, forge := range []struct{ name, title string }{{"gitea", "Gitea"}, {"forgejo", "Forgejo"}, {"gogs", "Gogs"}} {
		list = append(list, Profile{
			Name: forge.name, Row: "V44", Checked: "2026-11-30", Header: "X-" + forge.title + "-Signature",
			Shape: Shape{IDs: ids(looseID(head("X-" + forge.title + "-Delivery"))), Type: parts(head("X-" + forge.title + "-Event")),
				Tracks: one(js("/repository/id"), Part{})},
			Note: "again by hand only, with the same id",
		})
	}
	return list
}

// toolProfiles are trackers, alarms, meetings and the like.
func toolProfiles() []Profile {
	return []Profile{{
		Name: "linear", Row: "V62", Checked: "2026-11-30", Header: "Linear-Signature",
		Time: Time{JSON: "/webhookTimestamp", Unit: UnitMilliseconds, Tolerance: 60 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(looseID(head("Linear-Delivery"))), Type: parts(head("Linear-Event"), js("/type")), Mask: []string{"/webhookTimestamp"},
			Tracks: one(js("/data/id"), js("/updatedAt"))},
		Retries: 6 * time.Hour, AnswerWithin: 5 * time.Second, Retention: 8 * day, Note: "retries after 1 min, 1 h, 6 h",
	}, {
		Name: "zoom", Row: "V63", Checked: "2026-11-30", Header: "x-zm-signature", Prefix: "v0=", Content: "v0:{ts}:{body}", Handshake: HandshakeZoom,
		Time: Time{Header: "x-zm-request-timestamp", Tolerance: 2 * time.Hour, Class: TimeUnknown},
		Shape: Shape{IDs: ids(signedID(js("/event"), js("/event_ts"), js("/payload/object/id"))), Type: parts(js("/event")),
			Tracks: one(js("/payload/object/id"), js("/event_ts"))},
		Retries: 85 * time.Minute, AnswerWithin: 3 * time.Second, Retention: 8 * day, Note: "retries after 5, 20 and 60 minutes more",
	}, {
		Name: "pagerduty", Row: "V66", Checked: "2026-11-30", Family: FamilyList, Header: "X-PagerDuty-Signature", List: List{Separator: ",", Tag: "v1"},
		Shape: Shape{IDs: ids(signedID(js("/event/id"))), Type: parts(js("/event/event_type")), Tracks: one(js("/event/data/id"), js("/event/occurred_at"))},
	}, {
		Name: "sanity", Row: "V69", Checked: "2026-11-30", Family: FamilyList, Header: "sanity-webhook-signature", Encoding: EncodingBase64URL,
		Content: "{ts}.{body}", List: List{Separator: ",", Tag: "v1", Time: "t"}, Time: Time{Unit: UnitMilliseconds, Class: TimeUnknown},
		Shape:   Shape{IDs: ids(looseID(head("idempotency-key"))), Tracks: one(js("/_id"), Part{})},
		Retries: time.Minute, Note: "two retries, 30 s each",
	}, {
		Name: "workos", Row: "V70", Checked: "2026-11-30", Family: FamilyList, Header: "WorkOS-Signature", Content: "{ts}.{body}",
		List:  List{Separator: ",", Tag: "v1", Time: "t"},
		Time:  Time{Unit: UnitMilliseconds, Tolerance: 180 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(signedID(js("/id"))), Type: parts(js("/event")), Tracks: one(js("/data/id"), Part{})},
	}, {
		Name: "hook0", Row: "V71", Checked: "2026-11-30", Family: FamilyHook0, Header: "X-Hook0-Signature", List: List{Separator: ",", Tag: "v1", Time: "t"},
		Time:  Time{Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Shape: Shape{IDs: ids(looseID(head("X-Event-Id"))), Type: parts(head("X-Event-Type"))},
		Note:  "the id is signed where the code names its header",
	}}
}
