package backoff

import (
	"math/rand/v2"
	"time"
)

// Full returns a wait before try n+1 (n from 0): uniform in [0, min(limit, base·2ⁿ)].
func Full(n int, base, limit time.Duration) time.Duration {
	d := base << min(max(n, 0), 40)
	if d <= 0 || d > limit || d>>min(max(n, 0), 40) != base {
		d = limit
	}
	return time.Duration(rand.Int64N(int64(d) + 1))
}

// Around returns a wait uniform in d·(1±spread), spread between 0 and 1.
func Around(d time.Duration, spread float64) time.Duration {
	return time.Duration(float64(d) * (1 + spread*(2*rand.Float64()-1)))
}
