package upgrade

import (
	"context"
	"fmt"
	"net/url"
	"syscall"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo/internal/crashtest"
)

// A process that migrates is killed after one of its statements was executed, the next one finishes.
func TestKilledMigrations(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("with -short no other builds are made")
	}
	now := build(t, root(t))
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run("[stores/CT42] [stores/MG2] "+kind+": SIGKILL at a statement of a migration, and the next run finishes", func(t *testing.T) {
			t.Parallel()
			kills := 0
			for n, done := 1, false; !done; n += n/3 + 1 {
				if n > 2000 {
					t.Fatal("it never finishes")
				}
				d := openPlace(t, kind)
				x, behind := wired(t, d)
				left := n
				x.Arm(crashtest.Trap{Match: func(string) bool { left--; return left == 0 }, Fault: crashtest.KeepAnswer})
				victim := behind.worker(t, now, "migrate")
				ended := make(chan error, 1)
				go func() { ended <- victim.Ended(context.WithoutCancel(t.Context())) }()
				select {
				case <-x.Sprung():
					must(t, victim.Signal(syscall.SIGKILL))
					if err := <-ended; err == nil {
						t.Error("it had ended well")
					}
					kills++
				case err := <-ended:
					must(t, err)
					done = true
				}
				d.migrate(t, now)
				if version := d.version(t); version != d.known(t) {
					t.Errorf("killed at statement %d: version %d of %d", n, version, d.known(t))
				}
				p := d.worker(t, now, "serve")
				(&phases{d: d, seen: map[order]bool{}}).ask(t, p, order{"leased", fmt.Sprint("after ", n)})
				stop(t, p)
			}
			if kills < 5 {
				t.Errorf("void: %d kills", kills)
			}
		})
	}
}

// wired is a place as it is reached through a wire.
func wired(t *testing.T, d *place) (*crashtest.Wire, *place) {
	t.Helper()
	behind := *d
	var x *crashtest.Wire
	if d.kind == "postgres" {
		u, err := url.Parse(d.dsn)
		must(t, err)
		x, err = crashtest.OpenWire("tcp", u.Host, crashtest.Trap{})
		must(t, err)
		u.Host = fmt.Sprintf("127.0.0.1:%d", x.Port())
		behind.dsn = u.String()
	} else {
		c, err := driver.ParseDSN(d.dsn)
		must(t, err)
		x, err = crashtest.OpenMySQLWire("tcp", c.Addr, crashtest.Trap{})
		must(t, err)
		c.Addr = fmt.Sprintf("127.0.0.1:%d", x.Port())
		behind.dsn = c.FormatDSN()
	}
	t.Cleanup(func() { _ = x.Close() })
	return x, &behind
}
