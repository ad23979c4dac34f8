package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificate is a certificate on disk, read again when one of its files has changed, looked at once a second at most.
// A pair that cannot be read, as in the middle of a renewal, leaves the last good one in use.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	loaded  *tls.Certificate
	stamp   [2]fileStamp
	checked time.Time
}

type fileStamp struct {
	modified time.Time
	size     int64
}

func newCertificate(cert, key string) (*certificate, error) {
	c := &certificate{cert: cert, key: key}
	c.stamp = c.stamps()
	loaded, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	c.loaded = &loaded
	return c, nil
}

func (c *certificate) stamps() (s [2]fileStamp) {
	for i, name := range []string{c.cert, c.key} {
		if f, err := os.Stat(name); err == nil {
			s[i] = fileStamp{f.ModTime(), f.Size()}
		}
	}
	return s
}

// get gives the newest good pair.
func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= time.Second {
		c.checked = now
		if s := c.stamps(); s != c.stamp {
			if loaded, err := tls.LoadX509KeyPair(c.cert, c.key); err == nil {
				c.loaded, c.stamp = &loaded, s
			}
		}
	}
	return c.loaded, nil
}

// serverTLS is how the listener speaks: TLS 1.2 and newer, HTTP/2 where the client can.
func (c Config) serverTLS() (*tls.Config, error) {
	if c.TLS.Cert == "" {
		return nil, nil
	}
	store, err := newCertificate(c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return store.get() },
	}
	if m := c.Tenant.MTLS; m != nil {
		pem, err := os.ReadFile(m.CA)
		if err != nil {
			return nil, fmt.Errorf("tenant.mtls.ca: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tenant.mtls.ca: %s holds no certificate", m.CA)
		}
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil
}
