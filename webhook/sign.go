package webhook

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// SignParams is what a provider would send.
type SignParams struct {
	Body   []byte
	ID     string    // the delivery id, where it stands in a header
	Type   string    // the type of the event, where it stands in a header
	At     time.Time // when it is sent
	Method string    // "" means POST
	Query  string    // the raw query of the URL
	Form   bool      // the body is a form
}

// Signed is a request that a provider would send.
type Signed struct {
	Method string
	Query  string
	Header http.Header
	Body   []byte // as given, but for the few providers whose code or time stands inside it
}

// Request is the signed request as a receiver sees it.
func (s Signed) Request() Request {
	return Request(s)
}

// Sign makes what the provider of src would send, with the first of its secrets. It is for tests.
//
// ed25519 needs the private key as secret: whsk_ and base64 for Standard Webhooks, else 64 hex digits of its seed. A provider that signs
// with a certificate, or with a key that only it has, cannot be signed for; the error says so.
func Sign(src Source, p SignParams, own ...Profile) (Signed, error) {
	f := &faults{source: src.Name}
	profile, ok := src.settle(own, f)
	if err := f.err(); err != nil || !ok {
		return Signed{}, err
	}
	if len(src.Secrets) == 0 {
		return Signed{}, fmt.Errorf("cannot sign for %s: there is no secret", src.Provider)
	}
	if p.Method == "" {
		p.Method = http.MethodPost
	}
	text, err := src.Secrets[0].read()
	if err != nil {
		return Signed{}, err
	}
	s := signer{src: src, profile: &profile, text: text, p: p, out: Signed{p.Method, p.Query, http.Header{}, p.Body}}
	s.headers()
	if err := s.sign(); err != nil {
		return Signed{}, err
	}
	return s.out, nil
}

// signer is one Sign.
type signer struct {
	src     Source
	profile *Profile
	text    string // the secret
	p       SignParams
	out     Signed
}

// headers sets what is no code: type and id, where the profile reads them from a header.
func (s *signer) headers() {
	s.out.Header.Set("Content-Type", "application/json")
	if s.p.Form {
		s.out.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, part := range s.profile.Type {
		if part.Header != "" && s.p.Type != "" {
			s.out.Header.Set(part.Header, s.p.Type)
			break
		}
	}
	for _, id := range s.profile.IDs {
		if len(id.Parts) == 1 && id.Parts[0].Header != "" && s.p.ID != "" {
			s.out.Header.Set(id.Parts[0].Header, s.p.ID)
			if s.profile.SecretForm != FormGitLab {
				break
			}
		}
	}
}

func (s *signer) sign() error {
	cannot := func(why string) error { return fmt.Errorf("cannot sign for %s: %s", s.src.Provider, why) }
	switch p := s.profile; p.Family {
	case FamilyCert:
		return cannot("it signs with a certificate that only it has")
	case FamilyStandard:
		return s.standard()
	case FamilyToken:
		switch {
		case p.Header == "":
			return cannot("its token stands in each item of the body; write it there")
		case p.SecretForm == FormGitLab && strings.HasPrefix(s.text, "whsec_"):
			return s.standard()
		}
		s.out.Header.Set(p.Header, s.text)
		return nil
	case FamilyPubkey:
		if p.SecretForm != FormEd25519 {
			return cannot("it signs with an ECDSA key that only it has")
		}
		return s.discord()
	case FamilyAdyen:
		return s.adyen()
	case FamilyMailgun:
		return s.mailgun()
	case FamilyTwilio:
		return s.twilio()
	case FamilyHubSpot:
		ts := s.ts()
		s.out.Header.Set(p.Time.Header, ts)
		before := s.out.Method + hubspotURL(s.url())
		return s.code(p.Header, before, s.out.Body, ts)
	case FamilyHook0:
		ts, names := s.ts(), "x-event-id"
		id := s.out.Header.Get(names)
		before := ts + "." + names + "." + id + "."
		if id == "" {
			return cannot("it needs an id")
		}
		text, err := s.mac(before, s.out.Body)
		s.out.Header.Set(p.Header, "t="+ts+",h="+names+",v1="+text)
		return err
	}
	return s.template()
}

func (s *signer) ts() string {
	switch s.profile.Time.Unit {
	case UnitMilliseconds:
		return strconv.FormatInt(s.p.At.UnixMilli(), 10)
	case UnitRFC3339:
		return s.p.At.UTC().Format(time.RFC3339Nano)
	}
	return strconv.FormatInt(s.p.At.Unix(), 10)
}

func (s *signer) url() string {
	if s.out.Query == "" {
		return s.src.PublicURL
	}
	return s.src.PublicURL + "?" + s.out.Query
}

// mac is the code over the pieces, as the profile writes it.
func (s *signer) mac(parts ...any) (string, error) {
	k, err := makeKey(s.src.Secrets[0], s.text, s.profile.SecretForm, s.profile.Alg)
	if err != nil {
		return "", err
	}
	if k.macs == nil {
		return "", errors.New("the secret is no key of an HMAC")
	}
	var text bytes.Buffer
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			text.WriteString(part)
		case []byte:
			text.Write(part)
		}
	}
	m := k.macs.Get().(*macState)
	m.write(&signed{[]piece{{kind: pieceBody}}, []string{""}, text.Bytes()})
	switch s.profile.Encoding {
	case EncodingHex:
		return hex.EncodeToString(m.sum), nil
	case EncodingBase64URL:
		return base64.RawURLEncoding.EncodeToString(m.sum), nil
	}
	return base64.StdEncoding.EncodeToString(m.sum), nil
}

func (s *signer) code(header string, parts ...any) error {
	text, err := s.mac(parts...)
	s.out.Header.Set(header, text)
	return err
}

// template signs for the families hmac and list.
func (s *signer) template() error {
	p, ts := s.profile, s.ts()
	if p.Time.Header != "" {
		s.out.Header.Set(p.Time.Header, ts)
	}
	if p.Time.JSON != "" {
		raw := []byte(ts)
		if p.Time.Unit == UnitRFC3339 {
			raw = []byte(strconv.Quote(ts))
		}
		if body, ok := setMember(s.out.Body, p.Time.JSON, raw); ok {
			s.out.Body = body
		}
	}
	list, err := pieces(p.Content)
	if err != nil {
		return err
	}
	var parts []any
	for _, x := range list {
		switch x.kind {
		case pieceBody:
			parts = append(parts, s.out.Body)
		case pieceURL:
			parts = append(parts, s.url())
		case pieceMethod:
			parts = append(parts, s.out.Method)
		case pieceTime:
			parts = append(parts, ts)
		case pieceHeader:
			parts = append(parts, s.out.Header.Get(x.text))
		default:
			parts = append(parts, x.text)
		}
	}
	text, err := s.mac(parts...)
	text = p.Prefix + text
	if p.Family == FamilyList {
		text = p.List.Tag + "=" + text
		if p.List.Time != "" {
			text = p.List.Time + "=" + ts + p.List.Separator + text
		}
	}
	s.out.Header.Set(p.Header, text)
	return err
}

func (s *signer) standard() error {
	id, ts := s.p.ID, s.ts()
	if id == "" {
		return fmt.Errorf("cannot sign for %s: it needs an id", s.src.Provider)
	}
	s.out.Header.Set("webhook-id", id)
	s.out.Header.Set("webhook-timestamp", ts)
	before := id + "." + ts + "."
	if private, ok := strings.CutPrefix(s.text, "whsk_"); ok {
		key, err := base64Any(private)
		if err != nil || len(key) != ed25519.PrivateKeySize && len(key) != ed25519.SeedSize {
			return errors.New("the secret is no ed25519 private key after whsk_")
		}
		sum := ed25519.Sign(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), append([]byte(before), s.out.Body...))
		s.out.Header.Set("webhook-signature", "v1a,"+base64.StdEncoding.EncodeToString(sum))
		return nil
	}
	wire := *s.profile
	wire.Encoding = EncodingBase64
	s.profile = &wire
	text, err := s.mac(before, s.out.Body)
	s.out.Header.Set("webhook-signature", "v1,"+text)
	return err
}

func (s *signer) discord() error {
	key, err := hex.DecodeString(s.text)
	if err != nil || len(key) != ed25519.SeedSize && len(key) != ed25519.PrivateKeySize {
		return errors.New("the secret is no ed25519 private key in hex")
	}
	ts := s.ts()
	s.out.Header.Set(s.profile.Time.Header, ts)
	sum := ed25519.Sign(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), append([]byte(ts), s.out.Body...))
	s.out.Header.Set(s.profile.Header, hex.EncodeToString(sum))
	return nil
}

func (s *signer) twilio() error {
	if s.p.Form {
		fields, err := formText(s.out.Body)
		if err != nil {
			return err
		}
		return s.code(s.profile.Header, s.url(), fields)
	}
	if len(s.out.Body) > 0 {
		sum := sha256.Sum256(s.out.Body)
		query, err := url.ParseQuery(s.out.Query)
		if err != nil {
			return fmt.Errorf("the query cannot be read: %w", err)
		}
		if query.Get("bodySHA256") == "" {
			s.out.Query = strings.TrimPrefix(s.out.Query+"&bodySHA256="+hex.EncodeToString(sum[:]), "&")
		}
	}
	return s.code(s.profile.Header, s.url())
}

func (s *signer) adyen() error {
	items, ok := elements(s.out.Body, "/notificationItems")
	if !ok || !valid(s.out.Body) {
		return s.code(s.profile.Header, s.out.Body)
	}
	for i := len(items) - 1; i >= 0; i-- { // from the end, so that the places before stay right
		at := items[i]
		item := bytes.Clone(s.out.Body[at.from:at.to])
		content, err := adyenText(item)
		if err != nil {
			return err
		}
		text, err := s.mac(content)
		if err != nil {
			return err
		}
		if _, there := find(item, span{0, len(item)}, adyenItem+"/additionalData"); !there {
			item, _ = setMember(item, adyenItem+"/additionalData", []byte("{}"))
		}
		item, _ = setMember(item, adyenItem+"/additionalData/hmacSignature", []byte(strconv.Quote(text)))
		s.out.Body = bytes.Join([][]byte{s.out.Body[:at.from], item, s.out.Body[at.to:]}, nil)
	}
	return nil
}

func (s *signer) mailgun() error {
	token := s.p.ID
	if token == "" || !valid(s.out.Body) {
		return fmt.Errorf("cannot sign for %s: it needs an id, which is its token, and a JSON body", s.src.Provider)
	}
	text, err := s.mac(s.ts(), token)
	if err != nil {
		return err
	}
	member, err := json.Marshal(map[string]string{"timestamp": s.ts(), "token": token, "signature": text})
	if err != nil {
		return err
	}
	body, ok := setMember(s.out.Body, "/signature", member)
	if !ok {
		return fmt.Errorf("cannot sign for %s: the body is no object", s.src.Provider)
	}
	s.out.Body = body
	return nil
}

// setMember puts raw at a pointer, in an object that is there. Nothing else of the document changes.
func setMember(doc []byte, pointer string, raw []byte) ([]byte, bool) {
	if !valid(doc) {
		return doc, false
	}
	if at, ok := find(doc, span{0, len(doc)}, pointer); ok {
		return bytes.Join([][]byte{doc[:at.from], raw, doc[at.to:]}, nil), true
	}
	cut := strings.LastIndexByte(pointer, '/')
	at, ok := find(doc, span{0, len(doc)}, pointer[:cut])
	if !ok || doc[at.from] != '{' {
		return doc, false
	}
	member := strconv.Quote(unescape(pointer[cut+1:])) + ":" + string(raw)
	if inside := trim(doc, span{at.from + 1, at.to - 1}); inside.from < inside.to {
		member += ","
	}
	return bytes.Join([][]byte{doc[:at.from+1], []byte(member), doc[at.from+1:]}, nil), true
}
