package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var (
	sqlName       = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)
	keyID         = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	operationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`)
	headerName    = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")
	methodName    = regexp.MustCompile(`^[A-Z]{1,32}$`)
)

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("not an address: write HOST:PORT, as in 127.0.0.1:8080")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("not an address: the port is a number from 0 to 65535")
	}
	return nil
}

// loopback says whether only programs on this machine can reach an address to listen on.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func checkSQLName(s string) error {
	if !sqlName.MatchString(s) {
		return errors.New("not a name: a-z, 0-9 and _, at most 40, no digit first")
	}
	return nil
}

func checkKeyID(s string) error {
	if !keyID.MatchString(s) {
		return errors.New("not an id: letters, digits, _ and -, at most 32")
	}
	return nil
}

func checkDigestKey(s string) error {
	if len(s) < 32 {
		return errors.New("secret too short: at least 32 bytes")
	}
	return checkVaried(s)
}

func checkEncryptionKey(s string) error {
	if len(s) != 32 {
		return fmt.Errorf("secret of %d bytes: an encryption key has exactly 32; openssl rand -base64 24 makes one", len(s))
	}
	return checkVaried(s)
}

func checkVaried(s string) error {
	if strings.Count(s, s[:1]) == len(s) {
		return errors.New("secret is one byte repeated")
	}
	return nil
}

func checkToken(s string) error {
	if s != "" && len(s) < 16 {
		return errors.New("token too short: at least 16 bytes")
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return errors.New("token holds a byte that no header can carry")
		}
	}
	return nil
}

func checkPostgres(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return errors.New("not a PostgreSQL URL: write postgres://USER@HOST/DATABASE")
	}
	return nil
}

func checkMySQL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "mariadb" || u.Host == "" || len(u.Path) < 2 || strings.Contains(u.Path[1:], "/") {
		return errors.New("not a MySQL URL: write mysql://USER@HOST/DATABASE")
	}
	return nil
}

func checkHTTP(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("not an HTTP URL: write http://HOST:PORT or https://HOST")
	}
	return nil
}

func checkOperation(s string) error {
	if !operationName.MatchString(s) {
		return errors.New("not an operation name: letters, digits and . _ : -, at most 200, as in create-payment")
	}
	return nil
}

func checkHeader(s string) error {
	if !headerName.MatchString(s) {
		return errors.New("not a header name")
	}
	return nil
}

func checkMethod(s string) error {
	switch {
	case !methodName.MatchString(s):
		return errors.New("not a method: capital letters, as in PUT")
	case s == "GET", s == "HEAD", s == "OPTIONS", s == "TRACE", s == "CONNECT":
		return fmt.Errorf("%s is never guarded", s)
	}
	return nil
}

func checkPointer(s string) error {
	if !strings.HasPrefix(s, "/") {
		return errors.New("not a JSON pointer: it begins with /, as in /id")
	}
	return nil
}

func checkNetwork(s string) error {
	if _, err := netip.ParsePrefix(s); err == nil {
		return nil
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	return errors.New("not a network: write 10.0.0.0/8 or an address")
}

func checkStatus(s string) error {
	if n, err := parseWhole(s); err != nil || n < 200 || n > 599 {
		return errors.New("not a status: a number from 200 to 599")
	}
	return nil
}

func checkPattern(s string) error {
	if len(s) > 512 {
		return errors.New("pattern too long: at most 512 bytes")
	}
	if _, err := regexp.Compile(s); err != nil {
		return errors.New("not a regular expression (RE2)")
	}
	return nil
}

func checkOrigin(s string) error {
	u, err := url.Parse(s)
	if s != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "") {
		return errors.New("not an origin: write https://HOST, without a path, or *")
	}
	return nil
}

func checkBase(s string) error {
	if err := checkHTTP(s); err != nil {
		return err
	}
	u, _ := url.Parse(s)
	if (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return errors.New("scheme and host only: the path that is forwarded is the one received")
	}
	return nil
}

func checkPart(s string) error {
	where, name, ok := strings.Cut(s, ":")
	switch {
	case !ok || name == "":
	case where == "body":
		return checkPointer(name)
	case where == "query", where == "path":
		return nil
	}
	return errors.New("not a part of a request: write body:/POINTER, query:NAME or path:WILDCARD")
}

func checkMismatch(s string) error {
	if s != "422" && s != "400" && s != "409" {
		return errors.New("422, 400 or 409")
	}
	return nil
}

func checkPointerStatus(s string) error {
	if s != "410" && s != "303" {
		return errors.New("410 or 303")
	}
	return nil
}

func checkMethodPath(s string) error {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || !methodName.MatchString(method) || !strings.HasPrefix(rest, "/") {
		return errors.New("write METHOD /path, as in POST /v1/payments/keys")
	}
	return nil
}

func checkProbe(s string) error {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || (method != "GET" && method != "HEAD") || !strings.HasPrefix(rest, "/") {
		return errors.New("write GET /path or HEAD /path, with {derived_key} or another placeholder in it")
	}
	return nil
}

// urlScheme returns the scheme of s if s is a URL; a path, also one with a drive letter, has none.
func urlScheme(s string) string {
	scheme, _, ok := strings.Cut(s, "://")
	if !ok || len(scheme) < 2 || strings.ContainsAny(scheme, "/\\.") {
		return ""
	}
	return scheme
}
