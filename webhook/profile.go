package webhook

import (
	"net/http"
	"reflect"
	"time"
)

// Family is the code that checks a profile. Profiles of one family differ in data only.
type Family string

// The families; each has a file of its name.
const (
	FamilyHMAC     Family = "hmac"     // one code in one header
	FamilyList     Family = "list"     // a header of tag=code pairs, perhaps with a time
	FamilyStandard Family = "standard" // Standard Webhooks
	FamilyToken    Family = "token"    // the secret itself is sent
	FamilyPubkey   Family = "pubkey"   // a signature that a configured public key checks
	FamilyCert     Family = "cert"     // a signature that a certificate from a URL checks
	FamilyAdyen    Family = "adyen"
	FamilyTwilio   Family = "twilio"
	FamilyMailgun  Family = "mailgun"
	FamilyHubSpot  Family = "hubspot"
	FamilyHook0    Family = "hook0"
)

// Alg is the hash of an HMAC.
type Alg string

// The hashes.
const (
	AlgSHA1   Alg = "sha1"
	AlgSHA256 Alg = "sha256"
	AlgSHA512 Alg = "sha512"
)

// Encoding is how a code is written.
type Encoding string

// The encodings: hex of either case, padded base64, unpadded base64url.
const (
	EncodingHex       Encoding = "hex"
	EncodingBase64    Encoding = "base64"
	EncodingBase64URL Encoding = "base64url"
)

// Form is how the text of a secret becomes a key.
type Form string

// The forms of a secret.
const (
	FormText     Form = "text"     // the bytes of the text
	FormBase64   Form = "base64"   // padded or not
	FormHex      Form = "hex"      //
	FormStandard Form = "standard" // whsec_ and base64, or whpk_ and the base64 of an ed25519 public key
	FormGitLab   Form = "gitlab"   // whsec_ and base64 is a signing token, anything else a plain token
	FormEd25519  Form = "ed25519"  // hex of a public key
	FormSPKI     Form = "spki"     // base64 of a public key as X.509 writes it
	FormToken    Form = "token"    // 1 to 256 of A-Z a-z 0-9 _ -
	FormNone     Form = "none"     // there is no secret
)

// Unit is how a time is written.
type Unit string

// The units of a signed time.
const (
	UnitSeconds      Unit = "s"
	UnitMilliseconds Unit = "ms"
	UnitRFC3339      Unit = "rfc3339"
)

// TimeClass says what a provider stamps.
type TimeClass string

// The classes of a signed time.
const (
	TimePerAttempt TimeClass = "A" // each attempt anew
	TimePerEvent   TimeClass = "E" // the event once, so that late retries carry an old time
	TimeUnknown    TimeClass = "?"
)

// Part is a place of a delivery: a header, a JSON pointer or a form field. Exactly one is set.
type Part struct {
	Header, JSON, Form string
}

// ID is one delivery id: the values of its parts together.
type ID struct {
	Parts  []Part
	Signed bool // the code covers it
}

// Track is the lane of an event and its version there. The first track whose lane is present counts.
type Track struct {
	Lane          []Part
	Version       Part
	Ranks         []string // the version is the index of the text in this list
	UnsignedOrder bool     // the code does not cover the version
}

// Shape says what identifies an event and what orders it. JSON pointers start at the event.
type Shape struct {
	IDs     []ID // every one that is present counts; a match on any is a duplicate
	ByBytes bool // an event without an id is known by its bytes, which the code covers
	Tracks  []Track
	Type    []Part   // the first that is present
	Mask    []string // JSON pointers of members that may differ between attempts
}

// Items are events inside one body: the elements of the array at At, where * stands for every element on the way.
type Items struct {
	At   string
	Rest bool // only elements that hold no event of another pattern
	Shape
}

// List says how a header of tag=code pairs is read.
type List struct {
	Separator string // "," or ";"
	Tag       string // the tag of codes that count
	Time      string // the tag of the signed time; "" where there is none
}

// Time says where the signed time is and how far it may be off.
type Time struct {
	Header, JSON string        // where it is, unless the list has it
	Unit         Unit          // how it is written
	Tolerance    time.Duration // 0: no window
	Class        TimeClass
}

// Answer is what a sender is told.
type Answer struct {
	Status      int // 0 means 200
	ContentType string
	Body        string
}

// Profile describes a provider as data. In a Source, non-zero fields replace those of the provider.
type Profile struct {
	Name         string
	Family       Family
	Header       string // where the code is
	Prefix       string // what stands before it, exactly
	Alg          Alg
	Encoding     Encoding
	SecretForm   Form
	Content      string // what is signed: {body} {url} {method} {ts} {h:Name} and text between them
	BodyUnsigned bool   // the code does not cover the body
	List         List
	Time         Time
	Shape        // of the body, or of items that have none of their own
	Items        []Items
	Handshake    string // the handshake of section 7 that the provider performs, or ""
	Success      Answer
	Retries      time.Duration // how late the provider still retries by itself
	ByHand       time.Duration // how late a person can make it send again
	AnswerWithin time.Duration // how soon it wants the answer
	Retention    time.Duration // how long keys are kept
	SameBytes    string        // "run" where two hooks may send equal bytes
	MaxBody      int64
	Attempt      string // header with the number of the attempt
	Row          string // the row of the specification
	Note         string
	Checked      string // the day on which it was last compared with what the provider documents or its own library tests
}

// Horizon is how late the provider can still deliver, by itself or by hand.
func (p Profile) Horizon() time.Duration { return max(p.Retries, p.ByHand) }

// BodySigned tells whether a code covers the body.
func (p Profile) BodySigned() bool {
	return !p.BodyUnsigned && p.Family != FamilyToken && p.Family != FamilyMailgun
}

// with gives p with the non-zero fields of o.
func (p Profile) with(o Profile) Profile {
	to, from := reflect.ValueOf(&p).Elem(), reflect.ValueOf(o)
	for i := range from.NumField() {
		if f := from.Field(i); !f.IsZero() {
			to.Field(i).Set(f)
		}
	}
	return p
}

// withDefaults fills what a row of the table leaves out.
func (p Profile) withDefaults() Profile {
	d := Profile{Family: FamilyHMAC, Alg: AlgSHA256, Encoding: EncodingHex, SecretForm: FormText, Content: "{body}",
		Success: Answer{Status: http.StatusOK}, Retention: 35 * 24 * time.Hour, SameBytes: "park", MaxBody: 1 << 20}
	p = d.with(p)
	if p.Success.Status == 0 {
		p.Success.Status = http.StatusOK
	}
	if p.Time.Unit == "" {
		p.Time.Unit = UnitSeconds
	}
	return p
}
