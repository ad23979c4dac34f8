package webhook

import (
	"slices"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Providers are the built-in profiles, by name. Each call gives a list of its own.
func Providers() []Profile {
	list := slices.Concat(standardProfiles(), codeProfiles(), chatProfiles(), graphProfiles(), moneyProfiles(), mailProfiles(), toolProfiles())
	for i := range list {
		list[i] = list[i].withDefaults()
	}
	slices.SortFunc(list, func(a, b Profile) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// js and head are parts in a body and in a header; signedID and looseID are ids that a code covers, or does not.
func js(pointer string) Part    { return Part{JSON: pointer} }
func head(name string) Part     { return Part{Header: name} }
func signedID(parts ...Part) ID { return ID{Parts: parts, Signed: true} }
func looseID(parts ...Part) ID  { return ID{Parts: parts} }
func ids(list ...ID) []ID       { return list }
func parts(list ...Part) []Part { return list }
func one(lane, version Part) []Track {
	if version == (Part{}) {
		return []Track{{Lane: []Part{lane}}}
	}
	return []Track{{Lane: []Part{lane}, Version: version}}
}

// named gives a profile once for each name.
func aliases(p Profile, names ...string) []Profile {
	list := []Profile{p}
	for _, name := range names {
		p.Name = name
		list = append(list, p)
	}
	return list
}

func standardProfiles() []Profile {
	return aliases(Profile{
		Name: "standard-webhooks", Row: "V40", Checked: "2026-11-30", Family: FamilyStandard, SecretForm: FormStandard, Header: "webhook-signature",
		Time:    Time{Header: "webhook-timestamp", Tolerance: 300 * time.Second, Class: TimePerAttempt},
		Shape:   Shape{IDs: ids(signedID(head("webhook-id")), signedID(head("svix-id"))), Type: parts(js("/type")), Mask: []string{"/timestamp"}},
		Retries: 75 * time.Hour, AnswerWithin: 15 * time.Second, Note: "the svix- names of the headers count where no webhook- one is present",
	}, "svix", "openai", "clerk", "resend", "replicate")
}
