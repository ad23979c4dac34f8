package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// formCookie binds form tokens to a browser session, whatever login there is.
const formCookie = "idempo_form"

// maxForm is the largest form that is read: a reason, an answer.
const maxForm = 2 << 20

// session returns the value of the form cookie, and sets one where there is none. It stands for nobody: by itself it opens nothing.
func (h *Handler) session(w http.ResponseWriter, r *http.Request) string {
	if bearer(r) {
		return ""
	}
	if c, err := r.Cookie(formCookie); err == nil && len(c.Value) == 43 {
		return c.Value
	}
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	value := base64.RawURLEncoding.EncodeToString(b[:])
	http.SetCookie(w, &http.Cookie{Name: formCookie, Value: value, Path: h.config.Prefix + "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	return value
}

// formToken is what a form of this session and this person carries.
func (v *visit) formToken() string {
	mac := hmac.New(sha256.New, v.h.config.FormKey)
	mac.Write([]byte(v.form + "\x00" + v.h.config.Prefix + "\x00" + v.by.Actor))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// checkForm lets a POST through that comes from one of our own pages in the same session; a bearer token, which no browser adds by
// itself, needs neither.
func (h *Handler) checkForm(v *visit) error {
	if bearer(v.r) {
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
		return nil
	}
	if !SameOrigin(v.r) {
		return &fault{status: http.StatusForbidden, code: "cross_origin"}
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	given := v.r.Header.Get("X-Form-Token")
	if kind, _, _ := mime.ParseMediaType(v.r.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" {
		if err := v.r.ParseForm(); err != nil {
			return badForm(err)
		}
		given = v.r.PostForm.Get("form")
	}
	if !hmac.Equal([]byte(given), []byte(v.formToken())) {
		return &fault{status: http.StatusForbidden, code: "form_token"}
	}
	return nil
}

func badForm(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &fault{status: http.StatusRequestEntityTooLarge, code: "invalid"}
	}
	return &fault{status: http.StatusBadRequest, code: "invalid"}
}

// SameOrigin says whether a browser sent r from a page of the same origin. Where the browser itself says so, that counts: a proxy in
// between may have changed the Host. A request that says nothing of where it comes from was not made by a form.
func SameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	u, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
