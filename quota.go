package idempo

import (
	"sync"
	"time"
)

// maxQuotaTenants bounds the state kept per tenant, whatever tenants callers bring.
const maxQuotaTenants = 50_000

// quotas counts what tenants use in this process.
type quotas struct {
	limit   Quota
	mu      sync.Mutex
	tenants map[string]*usage
}

type usage struct {
	running, admitted int
	tokens            float64
	at                time.Time
	release           func() // takes one of admitted back
}

func (q *quotas) init(limit Quota) { q.limit, q.tenants = limit, map[string]*usage{} }

// of returns the tenant's usage, with its bucket filled up to now. The caller holds q.mu.
func (q *quotas) of(tenant string) *usage {
	now := time.Now()
	u := q.tenants[tenant]
	if u == nil {
		if len(q.tenants) >= maxQuotaTenants {
			q.drop()
		}
		u = &usage{tokens: float64(q.limit.Burst), at: now}
		u.release = func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			u.admitted--
		}
		q.tenants[tenant] = u
	}
	u.tokens = min(float64(q.limit.Burst), u.tokens+now.Sub(u.at).Seconds()*q.limit.NewPerSecond)
	u.at = now
	return u
}

// drop forgets tenants with nothing running: a forgotten one starts with a full bucket, so its burst is at most twice
// the limit.
func (q *quotas) drop() {
	for t, u := range q.tenants {
		if u.running == 0 && u.admitted == 0 {
			delete(q.tenants, t)
			if len(q.tenants) < maxQuotaTenants*3/4 {
				return
			}
		}
	}
}

// take reserves one running claim of a new key. Not ok: how long until one may fit.
func (q *quotas) take(tenant string) (wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(tenant)
	switch {
	case u.running >= q.limit.InFlight:
		return time.Second, false
	case q.limit.NewPerSecond > 0 && u.tokens < 1:
		return max(time.Second, time.Duration((1-u.tokens)/q.limit.NewPerSecond*float64(time.Second))), false
	case q.limit.NewPerSecond > 0:
		u.tokens--
	}
	u.running++
	return 0, true
}

// back gives a reservation back; unused also returns its token.
func (q *quotas) back(tenant string, unused bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(tenant)
	u.running--
	if unused && q.limit.NewPerSecond > 0 {
		u.tokens = min(float64(q.limit.Burst), u.tokens+1)
	}
}

// Admit counts one request of a tenant, of any kind, until release is called (once). It returns code quota_exceeded
// when the tenant has four times Quota.InFlight requests in this process. It makes no store call.
func (e *Engine) Admit(tenant string) (release func(), err error) {
	q := &e.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(tenant)
	if u.admitted >= 4*q.limit.InFlight {
		return nil, &Error{Op: "admit", Code: "quota_exceeded", RetryAfter: time.Second}
	}
	u.admitted++
	return u.release, nil
}
