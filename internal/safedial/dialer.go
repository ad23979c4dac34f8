package safedial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Resolver is the part of *net.Resolver that a [Dialer] needs.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer opens connections to judged addresses only. The zero Dialer allows public addresses on ports 80 and 443.
// It is safe for concurrent use and must not be changed once used.
type Dialer struct {
	// Allow are networks that may be reached besides public addresses.
	Allow []netip.Prefix
	// Ports that may be reached; empty means 80 and 443.
	Ports []int
	// Timeout bounds name resolution and dialling together; 0 leaves it to the context.
	Timeout time.Duration
	// Resolver answers names; nil means net.DefaultResolver.
	Resolver Resolver
}

// DialContext connects to address, "host:port", over network tcp, tcp4 or tcp6.
//
// Of the addresses a name has, the forbidden ones are left out and the others are tried in turn. An error wraps
// [ErrForbidden] where nothing was left to try; else it is that of the last try.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, fmt.Errorf("dial: %w: network %s", ErrForbidden, network)
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || !d.portAllowed(int(port)) {
		return nil, fmt.Errorf("dial: %w: port %s", ErrForbidden, portText)
	}
	addrs, err := d.resolve(ctx, network, host)
	if err != nil {
		return nil, fmt.Errorf("dial: resolve: %w", err)
	}
	// ControlContext sees what is about to be connected: a second look at the very address, whatever came before.
	dialer := net.Dialer{ControlContext: func(_ context.Context, _, at string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(at)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		return Judge(ap.Addr(), d.Allow)
	}}
	last := fmt.Errorf("%w: no address", ErrForbidden)
	for _, a := range addrs {
		if err := Judge(a, d.Allow); err != nil {
			if errors.Is(last, ErrForbidden) {
				last = err
			}
			continue
		}
		conn, err := dialer.DialContext(ctx, network, netip.AddrPortFrom(a, uint16(port)).String())
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, fmt.Errorf("dial: %w", last)
}

func (d *Dialer) portAllowed(port int) bool {
	if len(d.Ports) == 0 {
		return port == 80 || port == 443
	}
	return slices.Contains(d.Ports, port)
}

// resolve gives literal addresses as they stand, and names through the resolver with IPv4 in its plain form.
func (d *Dialer) resolve(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	var r Resolver = net.DefaultResolver
	if d.Resolver != nil {
		r = d.Resolver
	}
	addrs, err := r.LookupNetIP(ctx, "ip"+network[len("tcp"):], host)
	if err != nil {
		return nil, err
	}
	plain := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		plain[i] = a.Unmap()
	}
	return plain, nil
}
