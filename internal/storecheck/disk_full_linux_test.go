package storecheck

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// disk is a small file system of the test's own: a real one, so that ENOSPC comes from where it comes from.
type disk struct{ dir string }

// smallDisk mounts one, which takes the right to do so; without it the test is skipped.
func smallDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{filepath.Join(t.TempDir(), "small")}
	must(t, os.Mkdir(d.dir, 0o777)) //nolint:gosec // the server is another user
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=24m,mode=0777"); err != nil {
		t.Skipf("no small disk: a tmpfs cannot be mounted here (%v); run as root: sudo -E go test -run DiskFull", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(d.dir, syscall.MNT_DETACH) })
	return d
}

// fill takes all that is left; free gives it back.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.dir, "filler"))
	must(t, err)
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			size /= 2
		}
	}
}

func (d *disk) free(t *testing.T) { must(t, os.Remove(filepath.Join(d.dir, "filler"))) }

// fullStore is a store on a small disk.
type fullStore struct {
	*disk
	store  idempo.Store
	effect func(ctx context.Context, what string) error
	count  func(t testing.TB, what string) int
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, d *disk) fullStore{"sqlite": sqliteOnDisk,
		"idempgx": func(t *testing.T, d *disk) fullStore { return postgresOnDisk(t, d, pgOpeners()[0]) },
		"lib/pq":  func(t *testing.T, d *disk) fullStore { return postgresOnDisk(t, d, pgOpeners()[2]) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open(t, smallDisk(t)).cases(t)
		})
	}
}

func sqliteOnDisk(t *testing.T, d *disk) fullStore {
	file := filepath.Join(d.dir, "records.db")
	s := sqliteOpen(t, file, sqlite.Options{})
	raw := sqliteRaw(t, file)
	_, err := raw.ExecContext(t.Context(), "CREATE TABLE effects (name TEXT NOT NULL) STRICT")
	must(t, err)
	return fullStore{disk: d, store: s,
		effect: func(ctx context.Context, what string) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO effects VALUES (?)", what)
			return err
		},
		count: func(t testing.TB, what string) (n int) {
			must(t, raw.QueryRowContext(t.Context(), "SELECT count(*) FROM effects WHERE name = ?", what).Scan(&n))
			return n
		},
	}
}

// postgresOnDisk keeps the tables in a tablespace on the small disk; the log of the server is elsewhere, or it would stop.
func postgresOnDisk(t *testing.T, d *disk, kind pgOpener) fullStore {
	s := pgserver.Start(t, "autovacuum=off")
	place := filepath.Join(d.dir, "space")
	must(t, os.Mkdir(place, 0o700))
	pgserver.Own(t, place)
	for dir := d.dir; dir != "/"; dir = filepath.Dir(dir) { // the server is another user and must get there
		if info, err := os.Stat(dir); err == nil {
			_ = os.Chmod(dir, info.Mode().Perm()|0o055) //nolint:gosec // folders of this test
		}
		if dir == os.TempDir() {
			break
		}
	}
	admin := openDB(t, "pgx", s.DSN())
	for _, statement := range []string{fmt.Sprintf(`create tablespace small location '%s'`, place), `alter system set default_tablespace = small`, `select pg_reload_conf()`} {
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	must(t, admin.Close())
	p := kind.open(t, s.DSN(), migrated(t, s.DSN(), postgres.Options{}))
	if n := p.count(t, `select count(*) from pg_class where oid = 'SCHEMA.records'::regclass and reltablespace <> 0`); n != 1 {
		t.Fatal("void run: the records are not on the small disk")
	}
	return fullStore{disk: d, store: p.Store, effect: p.effect,
		count: func(t testing.TB, what string) int {
			return p.count(t, `select count(*) from SCHEMA.effects where what = $1`, what)
		}}
}

func (f fullStore) cases(t *testing.T) {
	e, err := idempo.New(f.store, idempo.Config{
		DigestKeys:     []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations:     []idempo.Operation{{Name: "atomic", Guard: idempo.GuardAtomic}, {Name: "leased", Guard: idempo.GuardLeased}},
		AcquireTimeout: 20 * time.Second, CompleteBudget: 500 * time.Millisecond,
	})
	must(t, err)
	large := make([]byte, 1<<20)
	_, _ = rand.Read(large) // does not compress
	t.Run("[stores/CT22] full at the claim: unavailable, and the work does not run", func(t *testing.T) {
		f.fill(t)
		full := 0
		for i := 0; i < 5000 && full < 20; i++ { // pages that are there take some more
			ran := false
			_, err := e.Do(t.Context(), request("leased", fmt.Sprint("claim ", i)), func(context.Context, *idempo.Claim) (idempo.Result, error) {
				ran = true
				return idempo.Result{}, nil
			})
			switch {
			case err == nil:
			case ran: // the claim had room, and its result had not
			case !errors.Is(err, idempo.ErrUnavailable) || !strings.Contains(err.Error(), "full"):
				t.Fatalf("%v, want unavailable because the disk is full", err)
			default:
				full++
			}
		}
		if full < 20 {
			t.Errorf("void run: the disk was full %d times", full)
		}
		f.free(t)
		_, err := e.Do(t.Context(), request("leased", "space back"), nothing)
		must(t, err)
	})
	t.Run("[stores/CT22] atomic, full at completion: rolled back; with space back it runs once", func(t *testing.T) {
		work := func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			return idempo.Result{Status: 200, Body: large}, f.effect(ctx, "atomic")
		}
		f.fill(t)
		_, err := e.Do(t.Context(), request("atomic", "a"), work)
		if err == nil || idempo.MayHaveHappened(err) {
			t.Errorf("%v, want an error that knows that nothing happened", err)
		}
		if n := f.count(t, "atomic"); n != 0 {
			t.Errorf("%d effects while the disk is full", n)
		}
		f.free(t)
		b, err := e.Do(t.Context(), request("atomic", "a"), work)
		if err != nil || b.Verdict != idempo.VerdictRun || f.count(t, "atomic") != 1 {
			t.Errorf("%q %v, %d effects", b.Verdict, err, f.count(t, "atomic"))
		}
	})
	t.Run("[stores/CT22] leased, full at completion: in doubt, and stored when there is space again", func(t *testing.T) {
		var n atomic.Int64
		work := func(context.Context, *idempo.Claim) (idempo.Result, error) {
			n.Add(1)
			f.fill(t)
			return idempo.Result{Status: 200, Body: large}, nil
		}
		_, err := e.Do(t.Context(), request("leased", "l"), work)
		if !errors.Is(err, idempo.ErrInDoubt) || !idempo.MayHaveHappened(err) {
			t.Errorf("%v, want in doubt", err)
		}
		f.free(t)
		if left := e.Drain(t.Context()); left != 0 {
			t.Errorf("%d results are not stored", left)
		}
		rec, err := e.Lookup(t.Context(), request("leased", "l").Key)
		if err != nil || rec.State != idempo.StateCompleted || len(rec.Result.Body) != len(large) || n.Load() != 1 {
			t.Errorf("%s %v, %d bytes, %d effects", rec.State, err, len(rec.Result.Body), n.Load())
		}
	})
}
