package pgserver

import "strings"

// The statements of the store, found by what they do: for a proxy that is to lose one of them.

const tryLock = "pg_try_advisory_xact_lock"

// IsClaim reports whether sql is a leased claim.
func IsClaim(sql string) bool {
	return strings.Contains(sql, tryLock) && strings.Contains(sql, "insert into")
}

// IsLock reports whether sql begins an atomic claim.
func IsLock(sql string) bool {
	return strings.Contains(sql, tryLock) && !strings.Contains(sql, "insert into")
}

// IsResult reports whether sql stores the result of a leased claim.
func IsResult(sql string) bool {
	return strings.Contains(sql, "update") && strings.Contains(sql, "completed_at = ")
}

// IsRenewal reports whether sql renews a lease.
func IsRenewal(sql string) bool {
	return strings.Contains(sql, "update") && strings.Contains(sql, "lease_until = greatest")
}
