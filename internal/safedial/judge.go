package safedial

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrForbidden is in every error of a dial that the guard refused. Nothing was sent.
var ErrForbidden = errors.New("target not allowed")

// ErrTooLarge is what reading the body of an answer gives once it is over the limit.
var ErrTooLarge = errors.New("answer too large")

// Judge tells whether addr may be dialled when the networks in allow are allowed besides public ones; the error says
// why not and wraps [ErrForbidden]. An address of IPv4 mapped into IPv6 is judged as what it is, so that it needs a
// network of its own form.
func Judge(addr netip.Addr, allow []netip.Prefix) error {
	addr = addr.WithZone("")
	if inner := embedded(addr); metadata(addr) || metadata(inner) {
		return fmt.Errorf("%w: metadata service", ErrForbidden)
	}
	for _, p := range allow {
		if p.Contains(addr) {
			return nil
		}
	}
	if why := special(addr); why != "" {
		return fmt.Errorf("%w: %s address", ErrForbidden, why)
	}
	return nil
}

// metadata tells the addresses under which clouds hand out credentials.
func metadata(a netip.Addr) bool {
	switch a.String() {
	case "169.254.169.254", // most clouds
		"169.254.170.2", "169.254.170.23", // container credentials
		"100.100.100.200", // Alibaba
		"168.63.129.16",   // Azure
		"192.0.0.192",     // Oracle
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254":
		return true
	}
	return false
}

// embedded is the IPv4 address inside an IPv4-mapped, IPv4-compatible, NAT64 or 6to4 address, or the zero Addr.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return netip.Addr{}
	}
	b := a.As16()
	switch {
	case a.Is4In6(), within(a, "::/96"), within(a, "64:ff9b::/96"), within(a, "64:ff9b:1::/48"):
		return netip.AddrFrom4([4]byte(b[12:]))
	case within(a, "2002::/16"):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return netip.Addr{}
}

func within(a netip.Addr, network string) bool { return netip.MustParsePrefix(network).Contains(a) }

// special names the purpose that keeps an address from being a public unicast one, or "".
// The lists are IANA's special-purpose registries (RFC 6890 and its successors).
func special(a netip.Addr) string {
	switch {
	case !a.IsValid() || a.IsUnspecified():
		return "unspecified"
	case a.Is4In6():
		return "IPv4-mapped"
	case a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast():
		return "multicast"
	case a.IsPrivate():
		return "private"
	}
	var reserved []string
	if a.Is4() {
		if within(a, "100.64.0.0/10") {
			return "carrier-grade NAT"
		}
		reserved = []string{"0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
			"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"}
	} else {
		switch {
		case within(a, "2002::/16"):
			return "6to4"
		case within(a, "64:ff9b::/96"), within(a, "64:ff9b:1::/48"):
			return "NAT64"
		case !within(a, "2000::/3"): // all public unicast is in there
			return "reserved"
		}
		reserved = []string{"2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"}
	}
	for _, network := range reserved {
		if within(a, network) {
			return "reserved"
		}
	}
	return ""
}
