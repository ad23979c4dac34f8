package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/idempo/idempo/internal/safedial"
)

const (
	keysFresh   = time.Minute      // a set this old is fetched again
	keysUsable  = time.Hour        // a set this old is believed while its endpoint is down
	keysUnknown = 30 * time.Second // at most one fetch in this time for an unknown id, or after a failure
	keysFirst   = time.Second      // the same while there is no set at all
)

func withID(keys []publicKey, kid string) []publicKey {
	if kid == "" {
		return keys
	}
	var found []publicKey
	for _, k := range keys {
		if k.kid == kid {
			found = append(found, k)
		}
	}
	return found
}

// localKeys is a key set on disk, read again when the file has changed, looked at once a second at most. A file that
// cannot be read, as in the middle of a change, leaves the last good set in use.
type localKeys struct {
	name string

	mu      sync.Mutex
	set     []publicKey
	stamp   fileStamp
	checked time.Time
}

func newLocalKeys(name string) (*localKeys, error) {
	l := &localKeys{name: name}
	if err := l.read(); err != nil {
		return nil, fmt.Errorf("tenant.jwt.jwks_file: %w", err)
	}
	return l, nil
}

func (l *localKeys) read() error {
	f, err := os.Stat(l.name)
	if err != nil {
		return err
	}
	stamp := fileStamp{f.ModTime(), f.Size()}
	if stamp == l.stamp {
		return nil
	}
	raw, err := os.ReadFile(l.name)
	if err != nil {
		return err
	}
	set, err := parseKeySet(raw)
	if err != nil {
		return err
	}
	l.set, l.stamp = set, stamp
	return nil
}

func (l *localKeys) keys(_ context.Context, kid string) ([]publicKey, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.checked) >= time.Second {
		l.checked = now
		_ = l.read() // the last good set stays
	}
	return withID(l.set, kid), nil
}

// remoteKeys is a fetched key set. One fetch runs at a time; while it does, the last set answers as long as it is usable.
type remoteKeys struct {
	fetch func(context.Context) ([]byte, error)

	mu      sync.Mutex
	set     []publicKey
	got     time.Time     // when set was fetched
	tried   time.Time     // when a fetch began last
	running chan struct{} // closed when the running fetch ends; nil: none
	work    sync.WaitGroup
}

func newRemoteKeys(url string, d safedial.Dialer) *remoteKeys {
	client := safedial.NewClient(safedial.Options{Dialer: d, Timeout: 5 * time.Second, MaxBody: 256 << 10})
	return &remoteKeys{fetch: func(ctx context.Context) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		res, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("status %d", res.StatusCode)
		}
		return io.ReadAll(res.Body)
	}}
}

func (k *remoteKeys) keys(ctx context.Context, kid string) ([]publicKey, error) {
	for range 2 {
		found, wait := k.look(kid)
		if wait == nil {
			break
		}
		if len(found) > 0 {
			return found, nil // a newer set is on its way; this one will do
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errTenantUnavailable, ctx.Err())
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set == nil || time.Since(k.got) > keysUsable {
		return nil, fmt.Errorf("%w: no key set", errTenantUnavailable)
	}
	return withID(k.set, kid), nil
}

// look gives what the usable set holds for an id, and, where that is not enough or not fresh, a fetch to wait for.
func (k *remoteKeys) look(kid string) (found []publicKey, wait <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	usable := k.set != nil && now.Sub(k.got) <= keysUsable
	if usable {
		found = withID(k.set, kid)
	}
	if len(found) > 0 && now.Sub(k.got) < keysFresh {
		return found, nil
	}
	pause := keysUnknown
	if !usable {
		pause = keysFirst
	}
	if k.running == nil {
		if !k.tried.IsZero() && now.Sub(k.tried) < pause {
			return found, nil
		}
		k.tried = now
		done := make(chan struct{})
		k.running = done
		k.work.Go(func() { k.refresh(done) })
	}
	return found, k.running
}

func (k *remoteKeys) refresh(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	raw, err := k.fetch(ctx)
	var set []publicKey
	if err == nil {
		set, err = parseKeySet(raw)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.set, k.got = set, time.Now()
	}
	k.running = nil
	close(done)
}

// close waits for a running fetch, which takes 5 s at most.
func (k *remoteKeys) close() { k.work.Wait() }
