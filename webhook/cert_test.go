package webhook

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// authority signs certificates and messages for tests.
type authority struct {
	key  *rsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: testTime().Add(-time.Hour), NotAfter: testTime().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// leaf makes a certificate for a key and a name.
func (a *authority) leaf(t *testing.T, key crypto.PublicKey, name string, from, to time.Time) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

const testMoment = 1_800_000_000

func testTime() time.Time { return time.Unix(testMoment, 0) }

// certServer answers every certificate URL, whatever its host, and counts.
type certServer struct {
	*httptest.Server
	asked atomic.Int32
	serve atomic.Pointer[http.HandlerFunc]
}

func newCertServer(t *testing.T, h http.HandlerFunc) *certServer {
	t.Helper()
	s := &certServer{}
	s.serve.Store(&h)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.serve.Load())(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// client leads every name to the server, with the limits of the real one.
func (s *certServer) client() *http.Client {
	c := s.Client()
	transport := c.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // the test's server has no name of paypal.com
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}
	return &http.Client{Transport: transport, Timeout: certTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func serveText(text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }
}

// paypal is a source whose certificates come from the server, and a request that its key signed.
func paypal(t *testing.T, a *authority, s *certServer) (*Verifier, Request) {
	t.Helper()
	v, err := NewVerifier(Source{Name: "pp", Provider: "paypal", Secrets: []Secret{FromText("1", "WEBHOOK")}})
	if err != nil {
		t.Fatal(err)
	}
	v.certs.client, v.certs.roots = s.client(), a.pool
	body := []byte(`{"id":"WH-1"}`)
	stamp := testTime().UTC().Format(time.RFC3339)
	sum := sha256.Sum256([]byte(paypalText("t1", stamp, "WEBHOOK", body)))
	sig, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("PAYPAL-TRANSMISSION-ID", "t1")
	h.Set("PAYPAL-TRANSMISSION-TIME", stamp)
	h.Set("PAYPAL-AUTH-ALGO", "SHA256withRSA")
	h.Set("PAYPAL-CERT-URL", "https://api.paypal.com/v1/notifications/certs/CERT-1")
	h.Set("PAYPAL-TRANSMISSION-SIG", base64.StdEncoding.EncodeToString(sig))
	return v, Request{Method: http.MethodPost, Header: h, Body: body}
}

const paypalName = "messageverificationcerts.paypal.com"

func TestCertificateFetched(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	good := a.leaf(t, a.key.Public(), paypalName, testTime().Add(-time.Minute), testTime().Add(48*time.Hour))
	s := newCertServer(t, serveText(good))
	v, req := paypal(t, a, s)
	t.Run("[webhooks/V16] [webhooks/V55] fetched once for all who ask at the same time, and kept for a day", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := Verify(v, req, testTime()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := Verify(v, req, testTime().Add(30*time.Minute)); err != nil {
			t.Error(err)
		}
		if n := s.asked.Load(); n != 1 {
			t.Errorf("%d fetches", n)
		}
		other := req
		other.Body = []byte(`{"id":"WH-2"}`)
		if _, err := Verify(v, other, testTime()); err == nil {
			t.Error("[webhooks/V55] another body is accepted")
		}
	})
	t.Run("[webhooks/V16] after a day it is fetched again", func(t *testing.T) {
		before := s.asked.Load()
		v.certs.entry(req.Header.Get("PAYPAL-CERT-URL"), testTime().Add(certKept))
		v.certs.entry(req.Header.Get("PAYPAL-CERT-URL"), testTime().Add(certKept))
		<-v.certs.entry(req.Header.Get("PAYPAL-CERT-URL"), testTime().Add(certKept)).done
		if n := s.asked.Load() - before; n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

func TestCertificateRefused(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from, to := testTime().Add(-time.Minute), testTime().Add(time.Minute)
	cases := map[string]struct {
		text  []byte
		other bool // no authority of the test vouches for it
	}{
		"another name": {text: a.leaf(t, a.key.Public(), "paypal.example", from, to)},
		"ended":        {text: a.leaf(t, a.key.Public(), paypalName, from.Add(-time.Hour), from)},
		"not begun":    {text: a.leaf(t, a.key.Public(), paypalName, to, to.Add(time.Hour))},
		"1024 bits":    {text: a.leaf(t, weak.Public(), paypalName, from, to)},
		"no RSA":       {text: a.leaf(t, curve.Public(), paypalName, from, to)},
		"no chain":     {text: a.leaf(t, a.key.Public(), paypalName, from, to), other: true},
		"garbage":      {text: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")},
		"empty":        {text: nil},
	}
	for name, c := range cases {
		t.Run("[webhooks/V16] refused: "+name, func(t *testing.T) {
			s := newCertServer(t, serveText(c.text))
			v, req := paypal(t, a, s)
			if c.other {
				v.certs.roots = x509.NewCertPool()
			}
			_, err := Verify(v, req, testTime())
			if reason, ok := IsRefusal(err); !ok || reason != ReasonCertInvalid {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestCertificateUnreachable(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	good := a.leaf(t, a.key.Public(), paypalName, testTime().Add(-time.Minute), testTime().Add(time.Hour))
	for name, h := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/", http.StatusFound)
		},
		"cut off": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run("[webhooks/V16] no refusal, for one minute: "+name, func(t *testing.T) {
			s := newCertServer(t, h)
			v, req := paypal(t, a, s)
			_, err := Verify(v, req, testTime())
			if _, refused := IsRefusal(err); refused || !errors.Is(err, ErrCertificate) {
				t.Fatalf("%v", err)
			}
			asked := s.asked.Load()
			next := serveText(good)
			s.serve.Store(&next)
			if _, err := Verify(v, req, testTime().Add(certFailure-1)); !errors.Is(err, ErrCertificate) || s.asked.Load() != asked {
				t.Errorf("asked again within a minute: %v", err)
			}
			if _, err := Verify(v, req, testTime().Add(certFailure)); err != nil {
				t.Errorf("after a minute: %v", err)
			}
		})
	}
	t.Run("[webhooks/V16] [security/SEC60] the dial guard stands between: a private address is never asked", func(t *testing.T) {
		s := newCertServer(t, serveText(good))
		v, err := NewVerifier(Source{Name: "pp", Provider: "paypal", Secrets: []Secret{FromText("1", "WEBHOOK")}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := v.certs.client.Get("https://" + s.Listener.Addr().String())
		if err == nil {
			res.Body.Close()
		}
		if err == nil || s.asked.Load() != 0 {
			t.Errorf("asked %d times, %v", s.asked.Load(), err)
		}
	})
}

func TestCertificateURL(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s := newCertServer(t, func(http.ResponseWriter, *http.Request) {})
	bad := func(at string) {
		t.Helper()
		v, req := paypal(t, a, s)
		req.Header.Set("PAYPAL-CERT-URL", at)
		_, err := Verify(v, req, testTime())
		if reason, _ := IsRefusal(err); reason != ReasonCertURLRefused {
			t.Errorf("%s: %v", at, err)
		}
	}
	t.Run("[webhooks/V16] [webhooks/V55] a URL off the pin is refused before any fetch", func(t *testing.T) {
		const path = "/v1/notifications/certs/CERT-1"
		for _, at := range []string{"http://api.paypal.com" + path, "https://api.paypal.com.evil.example" + path, "https://evil.example/api.paypal.com" + path,
			"https://api.paypal.com@evil.example" + path, "https://user@api.paypal.com" + path, "https://api.paypal.com:8443" + path,
			"https://api.paypal.com" + path + "?x=1", "https://api.paypal.com" + path + "#x", "https://api.paypal.com/v1/notifications/certs/../../x",
			"https://api.paypal.com/v1/notifications/certs/%2e%2e", "https://xapi.paypal.com" + path, "https://API.paypal.com" + path,
			"https://api.paypal.com\\@evil.example" + path, "//api.paypal.com" + path, "https:api.paypal.com", "https://api-m.sandbox.paypal.com", "x"} {
			bad(at)
		}
		if n := s.asked.Load(); n != 0 {
			t.Errorf("%d fetches", n)
		}
		for _, host := range []string{"api.paypal.com", "api-m.paypal.com", "api.sandbox.paypal.com", "api-m.sandbox.paypal.com", "api.paypal.com:443"} {
			if !pinned("https://"+host+path, paypalHost, paypalPath, false) {
				t.Errorf("%s is refused", host)
			}
		}
	})
	t.Run("[webhooks/V64] the hosts of sns", func(t *testing.T) {
		for host, want := range map[string]bool{"sns.us-east-1.amazonaws.com": true, "sns.us-gov-west-1.amazonaws.com": true,
			"sns.cn-north-1.amazonaws.com.cn": true, "sns.us-iso-east-1.amazonaws.com": true, "sns.amazonaws.com": false, "sns.s3.amazonaws.com": false,
			"sns.us-east.amazonaws.com": false, "sns.us-east-1.amazonaws.com.evil.example": false, "x.sns.us-east-1.amazonaws.com": false,
			"sns.us-east-1.s3.amazonaws.com": false, "sns-us-east-1.amazonaws.com": false, "sns.us-east-1.amazonaws.org": false} {
			if got := pinned("https://"+host+"/a.pem", snsHost, snsPath, false); got != want {
				t.Errorf("%s: %v", host, got)
			}
		}
	})
}

func TestCertificatesKept(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	good := a.leaf(t, a.key.Public(), paypalName, testTime().Add(-time.Minute), testTime().Add(time.Hour))
	s := newCertServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "CERT-1") {
			_, _ = w.Write(good)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	v, req := paypal(t, a, s)
	t.Run("[webhooks/V16] at most 32 are kept, and failures leave first", func(t *testing.T) {
		if _, err := Verify(v, req, testTime()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			other := req
			other.Header = req.Header.Clone()
			other.Header.Set("PAYPAL-CERT-URL", fmt.Sprintf("https://api.paypal.com/v1/notifications/certs/MADE-UP-%d", i))
			if _, err := Verify(v, other, testTime()); !errors.Is(err, ErrCertificate) {
				t.Fatal(err)
			}
		}
		if n := len(v.certs.entries); n > certEntries {
			t.Errorf("%d are kept", n)
		}
		asked := s.asked.Load()
		if _, err := Verify(v, req, testTime()); err != nil || s.asked.Load() != asked {
			t.Errorf("the good one was fetched again: %v", err)
		}
	})
	t.Run("[webhooks/V16] a few fetches run at once, the others are asked to come again", func(t *testing.T) {
		release := make(chan struct{})
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
		s.serve.Store(&slow)
		var waiting []*certEntry
		for i := range certAtOnce {
			waiting = append(waiting, v.certs.entry(fmt.Sprintf("https://api.paypal.com/v1/notifications/certs/SLOW-%d", i), testTime()))
		}
		e := v.certs.entry("https://api.paypal.com/v1/notifications/certs/ONE-MORE", testTime())
		<-e.done
		if !errors.Is(e.err, ErrCertificate) {
			t.Errorf("%v", e.err)
		}
		close(release)
		for _, e := range waiting {
			<-e.done
		}
	})
}

type panics struct{}

func (panics) check(*check) (Verdict, error) { panic("a bug, with a secret in it") }

func TestVerifierPanics(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W15] a verifier that panics refuses that request, and shows nothing", func(t *testing.T) {
		v, err := NewVerifier(Source{Name: "gh", Provider: "github", Secrets: []Secret{FromText("1", "k")}})
		if err != nil {
			t.Fatal(err)
		}
		v.scheme = panics{}
		_, err = Verify(v, Request{Method: http.MethodPost}, testTime())
		if reason, _ := IsRefusal(err); reason != ReasonPanic || strings.Contains(err.Error(), "secret in it") {
			t.Errorf("%v", err)
		}
	})
}

func TestPayPalText(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/V55] the signed text of the published sample", func(t *testing.T) {
		v := sampled(t, func(v *Vector) bool { return v.Signed != "" })
		if got := paypalText(v.Headers["PAYPAL-TRANSMISSION-ID"], v.Headers["PAYPAL-TRANSMISSION-TIME"], v.Secret, []byte(v.Body)); got != v.Signed {
			t.Errorf("%q", got)
		}
	})
}

func TestSubscriptionConfirmed(t *testing.T) {
	t.Parallel()
	v := sampled(t, func(v *Vector) bool { return v.ID == "sns-confirm" })
	src, _ := v.Source()
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want int
	}{
		"asked once":  {func(http.ResponseWriter, *http.Request) {}, http.StatusOK},
		"it failed":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, http.StatusServiceUnavailable},
		"a redirect":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, http.StatusServiceUnavailable},
		"it was lost": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.StatusServiceUnavailable},
	} {
		t.Run("[webhooks/HS7] one guarded GET before the answer: "+name, func(t *testing.T) {
			s := newCertServer(t, c.h)
			verifier, err := NewVerifier(src)
			if err != nil {
				t.Fatal(err)
			}
			r := &Receiver{cfg: Config{}, confirm: s.client()}
			got, err := Accept(verifier, v.Request(), v.Now(verifier), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			a := r.greeting(t.Context(), &endpoint{v: verifier}, got, v.Now(verifier))
			if a.Status != c.want || s.asked.Load() < 1 || s.asked.Load() > 2 || c.want == http.StatusOK && s.asked.Load() != 1 {
				t.Errorf("%d after %d requests", a.Status, s.asked.Load())
			}
		})
	}
	t.Run("[webhooks/HS7] [security/SEC60] the dial guard stands between here, too", func(t *testing.T) {
		s := newCertServer(t, func(http.ResponseWriter, *http.Request) {})
		engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("32 bytes that are no secret at all")}}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Engine: engine})
		if err != nil {
			t.Fatal(err)
		}
		got := Accepted{Reply: &Reply{Status: 200}, Confirm: "https://" + s.Listener.Addr().String() + "/", Verdict: Verdict{Scheme: "cert"}}
		if a := r.greeting(t.Context(), nil, got, testTime()); a.Status != http.StatusServiceUnavailable || s.asked.Load() != 0 {
			t.Errorf("%d after %d requests", a.Status, s.asked.Load())
		}
	})
}
