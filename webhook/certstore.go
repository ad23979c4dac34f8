package webhook

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/idempo/idempo/internal/safedial"
)

// The bounds of what is fetched and kept.
const (
	certTimeout  = 5 * time.Second
	certBytes    = 64 << 10
	certKept     = 24 * time.Hour
	certFailure  = time.Minute
	certEntries  = 32
	certAtOnce   = 4
	errKeyFormat = "the certificate URL gave no certificate"
)

// certificates fetches the certificates of one source and keeps them. Callers that want the same one share one fetch.
type certificates struct {
	client *http.Client
	roots  *x509.CertPool      // nil: the system's
	fixed  []*x509.Certificate // configured; stands in for every URL
	slots  chan struct{}

	mu      sync.Mutex
	entries map[string]*certEntry
}

type certEntry struct {
	done  chan struct{} // closed once chain or err is there
	chain []*x509.Certificate
	err   error
	until time.Time // on the callers' clock
}

func newCertificates(fixed []byte) (*certificates, error) {
	c := &certificates{entries: map[string]*certEntry{}, slots: make(chan struct{}, certAtOnce),
		client: safedial.NewClient(safedial.Options{Timeout: certTimeout, MaxBody: certBytes})}
	if fixed != nil {
		chain, err := parseChain(fixed)
		if err != nil {
			return nil, err
		}
		c.fixed = chain
	}
	return c, nil
}

func parseChain(text []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil && len(chain) < 10; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, refuse(ReasonCertInvalid, errKeyFormat)
		}
		chain = append(chain, one)
	}
	if len(chain) == 0 {
		return nil, refuse(ReasonCertInvalid, errKeyFormat)
	}
	return chain, nil
}

// key is the public key of the certificate at a pinned URL. It is fetched once for all who ask at the same time. A
// failed fetch wraps ErrCertificate, a wrong certificate is a refusal.
func (c *certificates) key(at string, names []string, now time.Time) (*rsa.PublicKey, error) {
	if c.fixed != nil {
		return judgeCert(c.fixed, names, now, true, nil)
	}
	e := c.entry(at, now)
	<-e.done
	if e.err != nil {
		return nil, e.err
	}
	return judgeCert(e.chain, names, now, false, c.roots)
}

// entry is what is kept of a URL, or a fetch that has begun.
func (c *certificates) entry(at string, now time.Time) *certEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[at]; ok {
		select {
		case <-e.done:
			if now.Before(e.until) {
				return e
			}
		default:
			return e
		}
	}
	e := &certEntry{done: make(chan struct{})}
	if !c.room(now) {
		e.err = fmt.Errorf("%w: too many fetches at once", ErrCertificate)
		close(e.done)
		return e
	}
	c.entries[at] = e
	go func() { // ends within certTimeout
		e.chain, e.err = c.fetch(at)
		e.until = now.Add(certKept)
		if e.err != nil {
			e.until = now.Add(certFailure)
		}
		<-c.slots
		close(e.done)
	}()
	return e
}

// room takes a slot for a fetch and a place for its result: failures go first, then what ends first.
func (c *certificates) room(now time.Time) bool {
	select {
	case c.slots <- struct{}{}:
	default:
		return false
	}
	for len(c.entries) >= certEntries {
		worst, found := "", false
		var worstEntry *certEntry
		for at, e := range c.entries {
			select {
			case <-e.done:
			default:
				continue // running
			}
			if !found || e.err != nil && worstEntry.err == nil || (e.err != nil) == (worstEntry.err != nil) && e.until.Before(worstEntry.until) {
				worst, worstEntry, found = at, e, true
			}
		}
		if !found {
			<-c.slots
			return false
		}
		delete(c.entries, worst)
	}
	return true
}

// fetch runs apart from any request, so that a sender that hangs up does not fail it for the others.
func (c *certificates) fetch(at string) ([]*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(context.Background(), certTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, refuse(ReasonCertURLRefused, "the certificate URL cannot be asked")
	}
	res, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCertificate, errors.Unwrap(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: status %d", ErrCertificate, res.StatusCode)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	return parseChain(text)
}
