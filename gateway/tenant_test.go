package gateway

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signer makes tokens and its key set.
type signer struct {
	t   *testing.T
	kid string
	alg string
	key crypto.Signer
}

func newSigner(t *testing.T, kid, alg string) *signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case "ES256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ES384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ES512":
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "EdDSA":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &signer{t, kid, alg, key}
}

func (s *signer) jwk() map[string]any {
	k := map[string]any{"kid": s.kid, "use": "sig"}
	switch pub := s.key.Public().(type) {
	case *rsa.PublicKey:
		k["kty"], k["n"], k["e"] = "RSA", b64(pub.N.Bytes()), b64(big.NewInt(int64(pub.E)).Bytes())
	case *ecdsa.PublicKey:
		raw, err := pub.Bytes()
		if err != nil {
			s.t.Fatal(err)
		}
		n := (len(raw) - 1) / 2
		k["kty"], k["crv"], k["x"], k["y"] = "EC", pub.Curve.Params().Name, b64(raw[1:1+n]), b64(raw[1+n:])
	case ed25519.PublicKey:
		k["kty"], k["crv"], k["x"] = "OKP", "Ed25519", b64(pub)
	}
	return k
}

func keySet(signers ...*signer) []byte {
	var keys []any
	for _, s := range signers {
		keys = append(keys, s.jwk())
	}
	raw, _ := json.Marshal(map[string]any{"keys": keys})
	return raw
}

func (s *signer) sign(signed string) []byte {
	s.t.Helper()
	alg, _ := algorithmOf(s.alg)
	var sig []byte
	var err error
	digest := []byte(signed)
	if alg.hash != 0 {
		h := alg.hash.New()
		h.Write(digest)
		digest = h.Sum(nil)
	}
	switch key := s.key.(type) {
	case *rsa.PrivateKey:
		if alg.family == "PS" {
			sig, err = rsa.SignPSS(rand.Reader, key, alg.hash, digest, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		} else {
			sig, err = rsa.SignPKCS1v15(rand.Reader, key, alg.hash, digest)
		}
	case *ecdsa.PrivateKey:
		var r, v *big.Int
		r, v, err = ecdsa.Sign(rand.Reader, key, digest)
		if err == nil {
			sig = append(r.FillBytes(make([]byte, alg.size)), v.FillBytes(make([]byte, alg.size))...)
		}
	default:
		sig, err = s.key.Sign(rand.Reader, digest, crypto.Hash(0))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return sig
}

// token makes one; head and claims are changed by the maps, nil removes.
func (s *signer) token(head, claims map[string]any) string {
	h := map[string]any{"alg": s.alg, "kid": s.kid, "typ": "JWT"}
	c := map[string]any{"account": "acct_7", "aud": "pay", "iss": "https://id.example", "exp": time.Now().Add(time.Hour).Unix()}
	apply := func(m, change map[string]any) string {
		for name, v := range change {
			if v == nil {
				delete(m, name)
			} else {
				m[name] = v
			}
		}
		raw, _ := json.Marshal(m)
		return b64(raw)
	}
	signed := apply(h, head) + "." + apply(c, claims)
	return signed + "." + b64(s.sign(signed))
}

func jwtConfig(t *testing.T, set []byte, algorithms ...string) (*JWT, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, set, 0o600); err != nil {
		t.Fatal(err)
	}
	return &JWT{JWKSFile: file, Algorithms: algorithms, Audience: "pay", Issuer: "https://id.example", Claim: "account"}, file
}

func TestJWT(t *testing.T) {
	t.Parallel()
	all := []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
	t.Run("[security/SEC12] tokens", func(t *testing.T) {
		t.Parallel()
		var shared crypto.Signer // one RSA key for all: they take long to make
		for _, alg := range all {
			s := &signer{t, "k1", alg, shared}
			if a, _ := algorithmOf(alg); shared == nil || (a.family != "RS" && a.family != "PS") {
				s = newSigner(t, "k1", alg)
			}
			if _, ok := s.key.(*rsa.PrivateKey); ok {
				shared = s.key
			}
			c, _ := jwtConfig(t, keySet(s), alg)
			tenants, err := (&Gateway{config: Config{Tenant: Tenant{JWT: c}}}).newTenants()
			if err != nil {
				t.Fatal(err)
			}
			identify := func(values ...string) (caller, error) {
				r := httptest.NewRequest("POST", "/", nil)
				r.Header["Authorization"] = values
				return tenants.identify(r)
			}
			ok := func(token string) {
				t.Helper()
				if c, err := identify("Bearer " + token); err != nil || c.tenant != "acct_7" {
					t.Errorf("%s: %v %v", alg, c, err)
				}
			}
			bad := func(what string, values ...string) {
				t.Helper()
				if c, err := identify(values...); !errors.Is(err, errNoTenant) {
					t.Errorf("%s, %s: %v %v", alg, what, c, err)
				}
			}
			good := s.token(nil, nil)
			ok(good)
			ok(s.token(map[string]any{"kid": nil}, nil))
			ok(s.token(nil, map[string]any{"aud": []string{"other", "pay"}}))
			ok(s.token(nil, map[string]any{"exp": time.Now().Add(-30 * time.Second).Unix(), "nbf": time.Now().Add(30 * time.Second).Unix()}))
			for what, change := range map[string]map[string]any{
				"exp missing": {"exp": nil}, "exp past": {"exp": time.Now().Add(-61 * time.Second).Unix()}, "exp a text": {"exp": "9999999999"},
				"nbf ahead": {"nbf": time.Now().Add(90 * time.Second).Unix()}, "nbf a text": {"nbf": "0"}, "aud wrong": {"aud": "other"}, "aud missing": {"aud": nil}, "aud a number": {"aud": 7},
				"iss wrong": {"iss": "https://evil.example"}, "iss missing": {"iss": nil}, "claim missing": {"account": nil}, "claim a number": {"account": 7}, "claim empty": {"account": ""}, "claim a list": {"account": []string{"a"}},
			} {
				bad(what, "Bearer "+s.token(nil, change))
			}
			for what, head := range map[string]map[string]any{
				"none": {"alg": "none"}, "None": {"alg": "None"}, "no alg": {"alg": nil}, "unknown kid": {"kid": "k2"}, "crit": {"crit": []string{"exp"}}, "another algorithm": {"alg": all[(len(alg)+3)%len(all)] + "x"},
			} {
				bad(what, "Bearer "+s.token(head, nil))
			}
			parts := strings.Split(good, ".")
			bad("no signature", "Bearer "+parts[0]+"."+parts[1]+".")
			bad("alg none, no signature", "Bearer "+b64([]byte(`{"alg":"none"}`))+"."+parts[1]+".")
			bad("two parts", "Bearer "+parts[0]+"."+parts[1])
			bad("changed claims", "Bearer "+parts[0]+"."+strings.Split(s.token(nil, map[string]any{"account": "victim"}), ".")[1]+"."+parts[2])
			bad("padding", "Bearer "+good+"=")
			bad("two headers", "Bearer "+good, "Bearer "+good)
			bad("no header")
			bad("another scheme", "Basic "+good)
			bad("over 16 KiB", "Bearer "+good+strings.Repeat(" ", 16<<10))
			// The public key as a shared secret.
			signed := b64([]byte(`{"alg":"HS256","kid":"k1"}`)) + "." + parts[1]
			for _, secret := range [][]byte{keySet(s), fmt.Append(nil, s.jwk()["x"]), fmt.Append(nil, s.jwk()["n"])} {
				mac := hmac.New(sha256.New, secret)
				mac.Write([]byte(signed))
				bad("symmetric", "Bearer "+signed+"."+b64(mac.Sum(nil)))
			}
		}
	})
	t.Run("[security/SEC12] a key serves its own algorithm only", func(t *testing.T) {
		t.Parallel()
		rs, ps := newSigner(t, "k1", "RS256"), newSigner(t, "k1", "PS256")
		ps.key = rs.key
		c, _ := jwtConfig(t, keySet(rs), "RS256")
		local, err := newLocalKeys(c.JWKSFile)
		if err != nil {
			t.Fatal(err)
		}
		tenant := &jwtTenant{config: *c, source: local}
		if _, err := tenant.verify(t.Context(), ps.token(nil, nil), time.Now()); !errors.Is(err, errToken) {
			t.Errorf("an algorithm that is not configured: %v", err)
		}
		weak, err := rsa.GenerateKey(rand.Reader, 1024)
		if err == nil {
			if _, err := parseKeySet(keySet(&signer{t, "w", "RS256", weak})); err == nil {
				t.Error("an RSA key of 1,024 bits was taken")
			}
		}
		for _, set := range []string{`{}`, `[]`, `{"keys":[]}`, `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`, `{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`,
			`{"keys":[{"kty":"RSA","use":"enc","n":"` + fmt.Sprint(rs.jwk()["n"]) + `","e":"AQAB"}]}`} {
			if keys, err := parseKeySet([]byte(set)); err == nil {
				t.Errorf("%.40s: %d keys", set, len(keys))
			}
		}
	})
	t.Run("[http/P4] [security/SEC8] a key removed from the file ends replays too", func(t *testing.T) {
		t.Parallel()
		old, other := newSigner(t, "k1", "ES256"), newSigner(t, "k2", "ES256")
		c, file := jwtConfig(t, keySet(old, other), "ES256")
		up, calls := counting(t, nil)
		config := payTo(nil, up.URL)
		config.Tenant = Tenant{JWT: c}
		g := newWorld(t).gate(config, nil)
		auth := "Authorization: Bearer " + old.token(nil, nil)
		g.want(g.pay("k1"), 401, "", "tenant_missing")
		g.want(g.pay("k1", auth), 200, "executed", "")
		g.want(g.pay("k1", auth), 200, "replayed", "")
		g.want(g.pay("k1", "Authorization: Bearer "+old.token(nil, map[string]any{"account": "acct_8"})), 200, "executed", "")
		g.want(g.pay("k1", "Authorization: Bearer "+old.token(nil, map[string]any{"exp": 1})), 401, "", "tenant_missing")
		if err := os.WriteFile(file, keySet(other), 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the refusal", func() bool { return g.pay("k1", auth).StatusCode == 401 })
		if r := g.do("GET", "/x", ""); r.StatusCode != 200 {
			t.Errorf("an unguarded route asks for a caller: %d", r.StatusCode)
		}
		if calls.count() != 3 {
			t.Errorf("%d calls", calls.count())
		}
	})
}

func TestRemoteKeys(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC13] cached, one fetch at a time, ≤ 1 per 30 s for unknown ids, 1 h without endpoint", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s1, s2 := newSigner(t, "k1", "EdDSA"), newSigner(t, "k2", "EdDSA")
			var fetches, atOnce, most atomic.Int32
			var down atomic.Bool
			set := atomic.Value{}
			set.Store(keySet(s1))
			k := &remoteKeys{fetch: func(ctx context.Context) ([]byte, error) {
				fetches.Add(1)
				most.Store(max(most.Load(), atOnce.Add(1)))
				defer atOnce.Add(-1)
				time.Sleep(100 * time.Millisecond)
				if down.Load() {
					return nil, errors.New("down")
				}
				return set.Load().([]byte), nil
			}}
			look := func(kid string) (int, error) {
				keys, err := k.keys(t.Context(), kid)
				return len(keys), err
			}
			for range 50 {
				go look("k1")
			}
			synctest.Wait()
			if n, err := look("k1"); n != 1 || err != nil {
				t.Fatalf("%d %v", n, err)
			}
			time.Sleep(time.Second)
			if fetches.Load() != 1 || most.Load() != 1 {
				t.Errorf("%d fetches, %d at once", fetches.Load(), most.Load())
			}
			for range 100 {
				look("unknown")
			}
			if fetches.Load() != 1 {
				t.Errorf("unknown ids fetched %d times within 30 s", fetches.Load()-1)
			}
			set.Store(keySet(s1, s2))
			time.Sleep(30 * time.Second)
			if n, _ := look("k2"); n != 1 || fetches.Load() != 2 {
				t.Errorf("a new id after 30 s: %d keys, %d fetches", n, fetches.Load())
			}
			set.Store(keySet(s2))
			time.Sleep(keysFresh)
			look("k1") // answered by the old set while the new one is fetched
			time.Sleep(time.Second)
			if n, err := look("k1"); n != 0 || err != nil {
				t.Errorf("a removed key: %d %v", n, err)
			}
			down.Store(true)
			time.Sleep(keysUsable - 2*time.Second)
			if n, err := look("k2"); n != 1 || err != nil {
				t.Errorf("within the hour: %d %v", n, err)
			}
			time.Sleep(10 * time.Second)
			if _, err := look("k2"); !errors.Is(err, errTenantUnavailable) {
				t.Errorf("after the hour: %v", err)
			}
			down.Store(false)
			time.Sleep(keysFirst)
			if n, err := look("k2"); n != 1 || err != nil {
				t.Errorf("back again: %d %v", n, err)
			}
			k.close()
		})
	})
	t.Run("[security/SEC13] the dial guard, redirects, 256 KiB", func(t *testing.T) {
		t.Parallel()
		s := newSigner(t, "k1", "EdDSA")
		var asked atomic.Int32
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			switch r.URL.Path {
			case "/redirect":
				http.Redirect(w, r, "/good", 302)
			case "/big":
				w.Write(keySet(s))
				w.Write([]byte(strings.Repeat(" ", 256<<10)))
			default:
				w.Write(keySet(s))
			}
		}))
		t.Cleanup(up.Close)
		u, _ := url.Parse(up.URL)
		var port int
		fmt.Sscan(u.Port(), &port)
		open := (&Gateway{config: Config{Outbound: Outbound{Allow: []string{"127.0.0.0/8"}, Ports: []int{port}}}}).guardedDialer()
		if keys, err := newRemoteKeys(up.URL+"/good", open).keys(t.Context(), "k1"); err != nil || len(keys) != 1 {
			t.Errorf("allowed: %v %v", keys, err)
		}
		for _, path := range []string{"/redirect", "/big"} {
			if _, err := newRemoteKeys(up.URL+path, open).keys(t.Context(), "k1"); !errors.Is(err, errTenantUnavailable) {
				t.Errorf("%s: %v", path, err)
			}
		}
		before := asked.Load()
		closed := (&Gateway{}).guardedDialer()
		if _, err := newRemoteKeys(up.URL+"/good", closed).keys(t.Context(), "k1"); !errors.Is(err, errTenantUnavailable) || asked.Load() != before {
			t.Errorf("not allowed: %v, asked %d times", err, asked.Load()-before)
		}
	})
}

func TestHeaderTenant(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC11] believed from trusted peers only, and never passed on from others", func(t *testing.T) {
		t.Parallel()
		up, calls := counting(t, nil)
		config := payTo(nil, up.URL)
		config.Tenant = Tenant{Header: "X-Account"}
		config.TrustedProxies = []string{"192.0.2.0/24"}
		stranger := newWorld(t).gate(config, nil)
		stranger.want(stranger.pay("k1", "X-Account: acct_7"), 401, "", "tenant_missing")
		if calls.count() != 0 {
			t.Errorf("%d calls", calls.count())
		}
		if stranger.do("GET", "/x", "", "X-Account: acct_7"); calls.count() != 1 {
			t.Error("unguarded request did not pass")
		}
		if r, _ := calls.last(); r.Header.Get("X-Account") != "" {
			t.Error("a stranger's tenant header reached the upstream")
		}
		config.TrustedProxies = []string{"127.0.0.0/8", "::1"}
		g := newWorld(t).gate(config, nil)
		g.want(g.pay("k1", "X-Account: acct_7"), 200, "executed", "")
		g.want(g.pay("k1", "X-Account: acct_7"), 200, "replayed", "")
		g.want(g.pay("k1", "X-Account: acct_8"), 200, "executed", "")
		g.want(g.pay("k1"), 401, "", "tenant_missing")
		g.want(g.pay("k1", "X-Account: "), 401, "", "tenant_missing")
		g.want(g.pay("k1", "X-Account: a", "X-Account: a"), 401, "", "tenant_missing")
		g.want(g.pay("k1", "X_Account: acct_7"), 401, "", "tenant_missing")
	})
	t.Run("[security/SEC4] principals of a tenant are apart", func(t *testing.T) {
		t.Parallel()
		up, _ := counting(t, nil)
		config := payTo(nil, up.URL)
		config.Tenant = Tenant{Header: "X-Account", Principal: "X-User"}
		config.TrustedProxies = []string{"127.0.0.0/8"}
		g := newWorld(t).gate(config, nil)
		g.want(g.pay("k1", "X-Account: a", "X-User: u1"), 200, "executed", "")
		g.want(g.pay("k1", "X-Account: a", "X-User: u2"), 200, "executed", "")
		g.want(g.pay("k1", "X-Account: a", "X-User: u1"), 200, "replayed", "")
		g.want(g.pay("k1", "X-Account: a"), 401, "", "tenant_missing")
	})
}

func TestForwardAuth(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC14] one GET per keyed request", func(t *testing.T) {
		t.Parallel()
		auth, asked := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Case") {
			case "two":
				w.Header()["X-Tenant"] = []string{"a", "b"}
			case "none":
			case "401":
				w.Header().Set("WWW-Authenticate", `Bearer realm="x"`)
				w.Header().Set("Set-Cookie", "a=b")
				w.WriteHeader(401)
				io.WriteString(w, "who are you")
			case "403":
				w.WriteHeader(403)
			case "404":
				w.Header().Set("X-Tenant", "a")
				w.WriteHeader(404)
			case "302":
				w.Header().Set("X-Tenant", "a")
				w.Header().Set("Location", "/")
				w.WriteHeader(302)
			case "hang":
				<-r.Context().Done()
			case "big":
				w.Header().Set("X-Tenant", "a")
				io.WriteString(w, strings.Repeat("x", 65<<10))
			default:
				w.Header().Set("X-Tenant", "acct_7")
				w.WriteHeader(204)
			}
		}))
		u, _ := url.Parse(auth.URL)
		var port int
		fmt.Sscan(u.Port(), &port)
		up, calls := counting(t, nil)
		config := payTo(nil, up.URL)
		config.Outbound = Outbound{Allow: []string{"127.0.0.0/8"}, Ports: []int{port}}
		config.Tenant = Tenant{ForwardAuth: &ForwardAuth{URL: auth.URL + "/check?x=1", Headers: []string{"Authorization", "x-case"}, TenantHeader: "X-Tenant", Timeout: 200 * time.Millisecond}}
		g := newWorld(t).gate(config, nil)
		g.want(g.pay("k1", "Authorization: t", "Cookie: c"), 200, "executed", "")
		r, body := asked.last()
		if r.Method != "GET" || r.RequestURI != "/check?x=1" || body != "" || r.Header.Get("Authorization") != "t" || r.Header.Get("Cookie")+r.Header.Get("Idempotency-Key")+r.Header.Get("User-Agent") != "" {
			t.Errorf("asked %s %s %q %v", r.Method, r.RequestURI, body, r.Header)
		}
		g.want(g.pay("k1"), 200, "replayed", "")
		if asked.count() != 2 {
			t.Errorf("asked %d times for two requests", asked.count())
		}
		refused := g.pay("k1", "X-Case: 401")
		if refused.StatusCode != 401 || refused.body != "who are you" || refused.Header.Get("WWW-Authenticate") == "" || refused.Header.Get("Set-Cookie") != "" {
			t.Errorf("401: %d %v %q", refused.StatusCode, refused.Header, refused.body)
		}
		if r := g.pay("k1", "X-Case: 403"); r.StatusCode != 403 {
			t.Errorf("403: %d", r.StatusCode)
		}
		for _, name := range []string{"two", "none", "404", "302", "hang", "big"} {
			r := g.pay("k1", "X-Case: "+name)
			g.want(r, 503, "", "tenant_unavailable")
		}
		before := asked.count()
		g.do("GET", "/x", "")
		if asked.count() != before || calls.count() != 2 {
			t.Errorf("an unguarded request asked; %d calls", calls.count())
		}
		config.Outbound = Outbound{}
		closed := newWorld(t).gate(config, nil)
		closed.want(closed.pay("k1"), 503, "", "tenant_unavailable")
		if asked.count() != before {
			t.Error("the dial guard let it through")
		}
	})
}

func TestMTLS(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC15] the tenant of a verified certificate", func(t *testing.T) {
		t.Parallel()
		a, evil := newAuthority(t), newAuthority(t)
		a.issue("server", 2, nil)
		up, _ := counting(t, nil)
		for from, want := range map[string]string{"": "acct-cn", "cn": "acct-cn", "san_dns": "acct.example", "san_uri": "spiffe://example/acct", "san_email": "acct@example"} {
			client := a.issue("acct-cn", 3, func(c *x509.Certificate) {
				c.DNSNames, c.EmailAddresses, c.IPAddresses = []string{"acct.example"}, []string{"acct@example"}, nil
				u, _ := url.Parse("spiffe://example/acct")
				c.URIs = []*url.URL{u}
			})
			two := a.issue("acct-two", 4, func(c *x509.Certificate) {
				c.DNSNames, c.EmailAddresses = []string{"a.example", "b.example"}, []string{"a@example", "b@example"}
			})
			config := payTo(nil, up.URL)
			config.TLS = TLS{Cert: a.file("server.pem"), Key: a.file("server.key")}
			config.Tenant = Tenant{MTLS: &MTLS{CA: a.file("ca.pem"), From: from}}
			g := newWorld(t).gate(config, nil)
			call := func(method, path string, certs ...tls.Certificate) (*http.Response, error) {
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool(), Certificates: certs}, ForceAttemptHTTP2: true}}
				req, _ := http.NewRequest(method, "https://"+g.address+path, nil)
				req.Header.Set("Idempotency-Key", "k1")
				res, err := client.Do(req)
				if err == nil {
					res.Body.Close()
				}
				return res, err
			}
			if res, err := call("POST", "/v1/payments", client); err != nil || res.StatusCode != 200 {
				t.Fatalf("%s: %v %v", from, res, err)
			}
			tenants := g.g.tenants.(mtlsTenant)
			leaf, _ := x509.ParseCertificate(client.Certificate[0])
			who, err := tenants.identify(&http.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}, PeerCertificates: []*x509.Certificate{leaf}}})
			if err != nil || who.tenant != want {
				t.Errorf("%s: tenant %q, %v; want %q", from, who.tenant, err, want)
			}
			if res, err := call("POST", "/v1/payments"); err != nil || res.StatusCode != 401 {
				t.Errorf("%s: without a certificate: %v %v", from, res, err)
			}
			if res, err := call("GET", "/x"); err != nil || res.StatusCode != 200 {
				t.Errorf("%s: unguarded without a certificate: %v %v", from, res, err)
			}
			if res, err := call("POST", "/v1/payments", evil.issue("acct-cn", 5, nil)); err == nil {
				t.Errorf("%s: a certificate of a stranger: %d", from, res.StatusCode)
			}
			if from != "" && from != "cn" {
				if res, err := call("POST", "/v1/payments", two); err != nil || res.StatusCode != 401 {
					t.Errorf("%s: several values, or none: %v %v", from, res, err)
				}
			}
		}
	})
}
