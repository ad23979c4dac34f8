package database

import (
	"net"
	"net/url"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
)

// Unverified reports whether the store is reached over the network without verified TLS, and what to add to its URL. A socket
// and a loopback address are not the network; a name that is not localhost is.
func Unverified(c config.Store) (fix string, yes bool) {
	raw, key, good, fix := string(c.Postgres), "sslmode", []string{"verify-full", "verify-ca"}, "add sslmode=verify-full to the URL"
	if c.MySQL != "" {
		raw, key, good, fix = string(c.MySQL), "tls", []string{"true"}, "add tls=true to the URL"
	}
	u, err := url.Parse(raw)
	if raw == "" || err != nil {
		return "", false
	}
	for _, mode := range good {
		if u.Query().Get(key) == mode {
			return "", false
		}
	}
	host := u.Hostname()
	if h := u.Query().Get("host"); h != "" { // libpq's parameter wins
		host = h
	}
	if host == "" || host == "localhost" || host[0] == '/' {
		return "", false
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return "", false
	}
	return fix, true
}
