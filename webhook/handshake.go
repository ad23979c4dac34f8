package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
)

// The handshakes of providers, named after the first that had them.
const (
	HandshakeMeta    = "meta"    // GET with hub.challenge
	HandshakeX       = "x"       // GET with crc_token
	HandshakeGraph   = "msgraph" // POST with validationToken
	HandshakeSlack   = "slack"   // signed, url_verification
	HandshakeTwitch  = "twitch"  // signed, webhook_callback_verification
	HandshakeZoom    = "zoom"    // signed, endpoint.url_validation
	HandshakeDiscord = "discord" // signed, PING
	HandshakeSNS     = "aws-sns" // signed, SubscriptionConfirmation
)

// Reply answers a handshake. Every reply is sent with nosniff.
type Reply struct {
	Status      int
	ContentType string
	Body        []byte
}

func plain(text string) *Reply { return &Reply{http.StatusOK, "text/plain", []byte(text)} }

func asJSON(v any) *Reply {
	text, err := json.Marshal(v)
	if err != nil {
		return &Reply{Status: http.StatusBadRequest}
	}
	return &Reply{http.StatusOK, "application/json", text}
}

// greet answers the handshakes that carry no code, or gives nil where the request is none of them.
func (c *check) greet() *Reply {
	query, err := url.ParseQuery(c.req.Query)
	one := func(name string) string {
		if list := query[name]; err == nil && len(list) == 1 {
			return list[0]
		}
		return ""
	}
	switch h := c.v.profile.Handshake; {
	case h == HandshakeMeta && c.req.Method == http.MethodGet:
		token, challenge := c.v.token.Load(), one("hub.challenge")
		if token == nil || one("hub.mode") != "subscribe" || challenge == "" || len(challenge) > 4096 ||
			subtle.ConstantTimeCompare([]byte(one("hub.verify_token")), []byte(token.text)) != 1 {
			return &Reply{Status: http.StatusForbidden}
		}
		return plain(challenge)
	case h == HandshakeX && c.req.Method == http.MethodGet:
		keys, token := c.active(), one("crc_token")
		if len(keys) == 0 || token == "" || len(token) > 4096 {
			return &Reply{Status: http.StatusBadRequest}
		}
		return asJSON(map[string]string{"response_token": "sha256=" + base64.StdEncoding.EncodeToString(hmacOf(keys[0].mac, token))})
	case h == HandshakeGraph && c.req.Method == http.MethodPost && query.Has("validationToken"):
		token := one("validationToken")
		if token == "" || len(token) > 4096 {
			return &Reply{Status: http.StatusBadRequest}
		}
		return plain(token)
	case c.req.Method != http.MethodPost:
		return &Reply{Status: http.StatusMethodNotAllowed}
	}
	return nil
}

func hmacOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// shake answers the handshakes that are signed, or gives nil where the request is an ordinary delivery. confirm is a URL
// to ask before the answer is a success.
func (c *check) shake(secretID string) (reply *Reply, confirm string) {
	text := func(pointer string) string { v, _ := textAt(c.req.Body, pointer); return v.Text }
	switch h := c.v.profile.Handshake; {
	case h == HandshakeTwitch && c.req.Header.Get("Twitch-Eventsub-Message-Type") == "webhook_callback_verification" && valid(c.req.Body):
		return plain(text("/challenge")), ""
	case h == "" || h == HandshakeTwitch || !valid(c.req.Body):
		return nil, ""
	case h == HandshakeSlack && text("/type") == "url_verification":
		return plain(text("/challenge")), ""
	case h == HandshakeZoom && text("/event") == "endpoint.url_validation":
		token := text("/payload/plainToken")
		for _, k := range c.active() {
			if k.id == secretID {
				return asJSON(map[string]string{"plainToken": token, "encryptedToken": hex.EncodeToString(hmacOf(k.mac, token))}), ""
			}
		}
	case h == HandshakeDiscord:
		return c.discordPing(), ""
	case h == HandshakeSNS && text("/Type") == snsSubscribe:
		return &Reply{Status: http.StatusOK}, text("/SubscribeURL")
	}
	return nil, ""
}

// discordPing tells a PING of interactions, which has an id, from one of events, whose type is 0.
func (c *check) discordPing() *Reply {
	kind, _ := textAt(c.req.Body, "/type")
	_, interaction := textAt(c.req.Body, "/id")
	_, event := find(c.req.Body, span{0, len(c.req.Body)}, "/event")
	switch {
	case kind.Text == "1" && interaction && !event:
		return asJSON(map[string]int{"type": 1})
	case kind.Text == "0" && !interaction:
		return &Reply{Status: http.StatusNoContent}
	}
	return nil
}
