package safedial_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idempo/idempo/internal/safedial"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	ok := func(addr string, allow ...string) {
		t.Helper()
		if err := safedial.Judge(netip.MustParseAddr(addr), prefixes(allow)); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	bad := func(addr string, allow ...string) {
		t.Helper()
		if err := safedial.Judge(netip.MustParseAddr(addr), prefixes(allow)); !errors.Is(err, safedial.ErrForbidden) {
			t.Errorf("%s: want ErrForbidden, got %v", addr, err)
		}
	}
	t.Run("[security/SEC60] public addresses pass, all others need a network, metadata never passes", func(t *testing.T) {
		for _, a := range []string{"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"} {
			ok(a)
		}
		for _, a := range []string{
			"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.1.1", "172.16.0.1", "172.31.255.255",
			"192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
			"240.0.0.1", "255.255.255.255", "::", "::1", "::8.8.8.8", "::ffff:8.8.8.8", "::ffff:10.0.0.1", "64:ff9b::808:808", "64:ff9b:1::808:808",
			"100::1", "2001::1", "2001:db8::1", "2002:808:808::1", "3fff::1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1", "fe80::1%eth0",
			"4000::1",
		} {
			bad(a)
		}
		ok("10.1.2.3", "10.0.0.0/8")
		ok("127.0.0.1", "127.0.0.1/32")
		ok("::ffff:10.0.0.1", "::ffff:10.0.0.0/104")
		bad("::ffff:10.0.0.1", "10.0.0.0/8")
		bad("10.1.2.3", "10.2.0.0/16")
		for _, a := range []string{"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
			"::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe"} {
			bad(a, "0.0.0.0/0", "::/0")
		}
	})
}

func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// turns answers each lookup with the next list; the last one stays.
type turns struct {
	lists [][]string
	next  atomic.Int32
}

func (r *turns) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	i := min(int(r.next.Add(1)-1), len(r.lists)-1)
	var out []netip.Addr
	for _, s := range r.lists[i] {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

// counted is a server on address that counts its connections.
func counted(t *testing.T, address string, h http.Handler) (port int, count *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("no listener on %s: %v", address, err)
	}
	count = new(atomic.Int32)
	srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			count.Add(1)
		}
	}}}
	srv.Start()
	t.Cleanup(srv.Close)
	return ln.Addr().(*net.TCPAddr).Port, count
}

func TestDial(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC61] a name that moves to a forbidden address is refused at that dial", func(t *testing.T) {
		port, count := counted(t, "127.0.0.1:0", http.NotFoundHandler())
		d := &safedial.Dialer{Allow: prefixes([]string{"127.0.0.1/32"}), Ports: []int{port},
			Resolver: &turns{lists: [][]string{{"127.0.0.1"}, {"127.0.0.2"}}}}
		address := net.JoinHostPort("rebind.example", strconv.Itoa(port))
		c, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if _, err := d.DialContext(t.Context(), "tcp", address); !errors.Is(err, safedial.ErrForbidden) {
			t.Fatalf("want ErrForbidden, got %v", err)
		}
		if count.Load() > 1 {
			t.Fatalf("%d connections", count.Load())
		}
	})
	t.Run("[security/SEC61] of several addresses only allowed ones are dialled", func(t *testing.T) {
		port, count := counted(t, "127.0.0.1:0", http.NotFoundHandler())
		d := &safedial.Dialer{Allow: prefixes([]string{"127.0.0.1/32"}), Ports: []int{port},
			Resolver: &turns{lists: [][]string{{"127.0.0.2", "::1", "127.0.0.1"}}}}
		c, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort("many.example", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.RemoteAddr().String(); got != net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) {
			t.Fatalf("dialled %s, %d connections", got, count.Load())
		}
	})
	t.Run("[security/SEC60] ports, literals and networks", func(t *testing.T) {
		port, count := counted(t, "127.0.0.1:0", http.NotFoundHandler())
		all := prefixes([]string{"127.0.0.0/8"})
		for address, d := range map[string]*safedial.Dialer{
			net.JoinHostPort("127.0.0.1", strconv.Itoa(port)):        {Allow: all},
			net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "x":  {Allow: all, Ports: []int{port}},
			net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "0":  {Allow: all, Ports: []int{80}},
			net.JoinHostPort("::ffff:127.0.0.1", strconv.Itoa(port)): {Allow: all, Ports: []int{port}},
			net.JoinHostPort("localhost", strconv.Itoa(port)):        {Ports: []int{port}},
		} {
			if c, err := d.DialContext(t.Context(), "tcp", address); !errors.Is(err, safedial.ErrForbidden) {
				t.Errorf("%s: want ErrForbidden, got %v, %v", address, c, err)
			}
		}
		if _, err := (&safedial.Dialer{Allow: all, Ports: []int{port}}).DialContext(t.Context(), "unix", "/tmp/x"); !errors.Is(err, safedial.ErrForbidden) {
			t.Errorf("unix: %v", err)
		}
		if count.Load() != 0 {
			t.Errorf("%d connections", count.Load())
		}
	})
}

func TestClient(t *testing.T) {
	// Not parallel: the proxy of the environment is part of the row.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	var paths []string
	port, _ := counted(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case "/exact":
			io.WriteString(w, strings.Repeat("x", 64<<10))
		case "/big":
			io.WriteString(w, strings.Repeat("x", 64<<10+1))
		}
	}))
	c := safedial.NewClient(safedial.Options{Dialer: safedial.Dialer{Allow: prefixes([]string{"127.0.0.1/32"}), Ports: []int{port},
		Resolver: &turns{lists: [][]string{{"127.0.0.1"}}}}})
	get := func(path string) (*http.Response, []byte, error) {
		t.Helper()
		res, err := c.Get("http://service.example:" + strconv.Itoa(port) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return res, b, err
	}
	t.Run("[security/SEC60] no redirect, no proxy, 64 KiB", func(t *testing.T) {
		if res, _, _ := get("/redirect"); res.StatusCode != http.StatusFound {
			t.Errorf("status %d", res.StatusCode)
		}
		if _, b, err := get("/exact"); err != nil || len(b) != 64<<10 {
			t.Errorf("exact: %d bytes, %v", len(b), err)
		}
		if _, b, err := get("/big"); !errors.Is(err, safedial.ErrTooLarge) || len(b) != 64<<10 {
			t.Errorf("big: %d bytes, %v", len(b), err)
		}
		if want := []string{"/redirect", "/exact", "/big"}; !slices.Equal(paths, want) {
			t.Errorf("asked %v", paths)
		}
	})
}
