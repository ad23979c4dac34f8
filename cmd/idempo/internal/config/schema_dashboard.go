package config

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// Dashboard says who may log in to the dashboard, and how.
type Dashboard struct {
	Auth           string // token, basic, header, none
	Users          map[string]DashboardUser
	Header         string
	TrustedProxies []netip.Prefix
	PublicURL      string
	AllowedHosts   []string // names without port, lower case
}

// DashboardUser is what one name may do.
type DashboardUser struct {
	Password Secret // bcrypt hash
	Role     string
	Tenants  []string // nil: all
}

func dashboardField() field {
	network, host, tenant := field{kind: text, check: checkNetwork}, field{kind: text, check: checkHost}, field{kind: text}
	user := field{kind: section, fields: []field{
		{name: "password", kind: text, secret: true, check: checkBcrypt, sample: "$2a$10$TJOtw4Q3cb2RN5AGov2psu6n91uWlm53hd2CE9juz4GtDHAqoLfR.", defDoc: "none", doc: "With auth basic: the bcrypt hash of it, as htpasswd -nB makes it."},
		{name: "role", kind: word, def: "viewer", words: []string{"viewer", "operator", "admin"}, doc: "viewer sees, operator settles as well, admin purges and reveals answers as well."},
		{name: "tenants", kind: list, item: &tenant, defDoc: "all", sample: "[acct_7]", doc: "The only tenants that this user sees."},
	}}
	return field{name: "dashboard", kind: section, doc: "Who may log in to the dashboard at listen.admin, and how.", fields: []field{
		{name: "auth", kind: word, def: "token", words: []string{"token", "basic", "header", "none"},
			doc: "token: one made in the data folder. basic: users. header: a proxy says who. none: on loopback only."},
		{name: "users", kind: mapping, item: &user, doc: "Roles by name, for basic and header. The name * stands for everybody else a proxy vouches for."},
		{name: "header", kind: text, def: "X-Forwarded-User", check: checkHeader, doc: "With auth header: the header that names the user."},
		{name: "trusted_proxies", kind: list, item: &network, defDoc: "none", sample: `["10.0.0.7"]`, doc: "With auth header: whose header is believed."},
		{name: "public_url", kind: text, defDoc: "listen.admin", sample: "https://ops.example", check: checkBase, doc: "Where browsers reach the dashboard."},
		{name: "allowed_hosts", kind: list, item: &host, defDoc: "loopback names and the host of public_url", sample: "[ops.example]", doc: "Host names that requests may be made under."},
	}}
}

func checkBcrypt(s string) error {
	if cost, err := bcrypt.Cost([]byte(s)); err != nil || cost > 15 {
		return errors.New("not a bcrypt hash of cost 4 to 15: htpasswd -nB NAME makes one")
	}
	return nil
}

func checkHost(s string) error {
	if s == "" || strings.ContainsAny(s, "/ @?#[]") || strings.Contains(s, ":") && !validAddr(s) {
		return errors.New("not a host name: write it without scheme, port and path")
	}
	return nil
}

func validAddr(s string) bool { _, err := netip.ParseAddr(s); return err == nil }

func decodeDashboard(v *value) Dashboard {
	d := Dashboard{Auth: v.at("auth").text, Header: v.at("header").text, PublicURL: v.at("public_url").text, Users: map[string]DashboardUser{},
		AllowedHosts: []string{"localhost", "127.0.0.1", "::1"}}
	for _, u := range v.at("users").members {
		one := DashboardUser{Password: Secret(u.at("password").text), Role: u.at("role").text}
		for _, t := range u.at("tenants").members {
			one.Tenants = append(one.Tenants, t.text)
		}
		d.Users[u.name] = one
	}
	for _, n := range v.at("trusted_proxies").members {
		if p, err := netip.ParsePrefix(n.text); err == nil {
			d.TrustedProxies = append(d.TrustedProxies, p.Masked())
		} else if a, err := netip.ParseAddr(n.text); err == nil {
			d.TrustedProxies = append(d.TrustedProxies, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if u, err := url.Parse(d.PublicURL); err == nil && u.Host != "" {
		d.AllowedHosts = append(d.AllowedHosts, strings.ToLower(u.Hostname()))
	}
	if hosts := v.at("allowed_hosts"); hosts.set {
		d.AllowedHosts = nil
		for _, h := range hosts.members {
			d.AllowedHosts = append(d.AllowedHosts, strings.ToLower(h.text))
		}
	}
	return d
}

// combineDashboard refuses a login that would let anybody in, or nobody.
func (r *reader) combineDashboard(root *value) {
	d, admin := root.at("dashboard"), root.at("listen").at("admin")
	auth, users := d.at("auth"), d.at("users")
	switch auth.text {
	case "none":
		if !loopback(admin.text) {
			r.both(admin, auth, "an address beyond loopback needs a login")
		}
	case "basic", "header":
		if len(users.members) == 0 {
			r.both(auth, users, "nobody could log in: name users")
		}
		if proxies := d.at("trusted_proxies"); auth.text == "header" && len(proxies.members) == 0 {
			r.both(auth, proxies, "anybody could set the header: name the proxies that may")
		}
	}
	for _, u := range users.members {
		if auth.text == "basic" && u.at("password").text == "" {
			r.at(u, "no password: with auth basic each user has one")
		}
	}
}
