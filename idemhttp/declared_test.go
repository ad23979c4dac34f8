package idemhttp_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

func TestDeclared(t *testing.T) {
	t.Parallel()
	declare := func(t *testing.T, c idemhttp.Config, op idempo.Operation, r idemhttp.Rules) idemhttp.Declared {
		t.Helper()
		e, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
			DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
			Wait:       2 * time.Second,
			Retention:  3 * time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := idemhttp.New(e, c)
		if err != nil {
			t.Fatal(err)
		}
		op.Name = "pay"
		if op.Guard == "" {
			op.Guard = idempo.GuardAtomic
		}
		if len(m.Declared()) != 0 {
			t.Error("something is declared before anything is wrapped")
		}
		if _, err := m.Wrap(op, r, http.NotFoundHandler()); err != nil {
			t.Fatal(err)
		}
		all := m.Declared()
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	global := idemhttp.Config{GlobalTenant: true}
	t.Run("defaults are filled in", func(t *testing.T) {
		d := declare(t, global, idempo.Operation{}, idemhttp.Rules{})
		r := d.Rules
		switch {
		case r.Key != idemhttp.KeyRequired:
			t.Error(r.Key)
		case !slices.Equal(r.KeyHeaders, []string{"Idempotency-Key"}):
			t.Error(r.KeyHeaders)
		case r.MinKey != 1, r.MaxKey != 255:
			t.Error(r.MinKey, r.MaxKey)
		case r.MismatchStatus != 422:
			t.Error(r.MismatchStatus)
		case r.Wait != 2*time.Second:
			t.Error(r.Wait)
		case r.Fingerprint != idemhttp.FingerprintCanonical:
			t.Error(r.Fingerprint)
		case d.Operation.Retention != 3*time.Hour, d.Operation.Tombstone != 30*time.Hour:
			t.Error(d.Operation.Retention, d.Operation.Tombstone)
		case d.ReplayHeader != "Idempotent-Replayed":
			t.Error(d.ReplayHeader)
		case !slices.Equal(d.Methods, []string{"POST", "PATCH"}):
			t.Error(d.Methods)
		case d.Inspected:
			t.Error("inspected")
		}
	})
	t.Run("profiles are filled in", func(t *testing.T) {
		ok := func(profile string, max int, source string) {
			t.Helper()
			r := declare(t, global, idempo.Operation{}, idemhttp.Rules{Profile: profile}).Rules
			got := strings.Join(append(append(slices.Clone(r.KeyHeaders), r.KeyFrom...), r.KeyPointer), " ")
			if r.MaxKey != max || strings.TrimSpace(got) != source {
				t.Errorf("%s: %d %q", profile, r.MaxKey, got)
			}
		}
		ok("default", 255, "Idempotency-Key")
		ok("stripe", 255, "Idempotency-Key")
		ok("adyen", 64, "Idempotency-Key")
		ok("paypal", 108, "PayPal-Request-Id")
		ok("square", 45, "/idempotency_key")
		ok("aws", 64, "aws:ClientToken")
	})
	t.Run("what a key belongs to", func(t *testing.T) {
		tenant := func(*http.Request) (string, error) { return "a", nil }
		ok := func(c idemhttp.Config, want string) {
			t.Helper()
			if got := strings.Join(declare(t, c, idempo.Operation{}, idemhttp.Rules{}).KeyedBy, " "); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		ok(global, "operation key")
		ok(idemhttp.Config{TenantFunc: tenant}, "tenant operation key")
		ok(idemhttp.Config{TenantFunc: tenant, PrincipalFunc: tenant}, "tenant principal operation key")
	})
	t.Run("what becomes of an answer", func(t *testing.T) {
		ok := func(d idemhttp.Declared, status int, want idemhttp.Outcome) {
			t.Helper()
			if got := d.Outcome(status); got != want {
				t.Errorf("%d: %s, want %s", status, got, want)
			}
		}
		atomic := declare(t, global, idempo.Operation{}, idemhttp.Rules{Outcomes: map[int]idemhttp.Outcome{404: idemhttp.OutcomeRelease}})
		ok(atomic, 201, idemhttp.OutcomeKeep)
		ok(atomic, 303, idemhttp.OutcomeKeep)
		ok(atomic, 402, idemhttp.OutcomeKeepFailure)
		ok(atomic, 404, idemhttp.OutcomeRelease)
		ok(atomic, 429, idemhttp.OutcomeRelease)
		ok(atomic, 500, idemhttp.OutcomeRelease)
		leased := declare(t, global, idempo.Operation{Guard: idempo.GuardLeased}, idemhttp.Rules{})
		ok(leased, 404, idemhttp.OutcomeKeepFailure)
		ok(leased, 500, idemhttp.OutcomeInDoubt)
	})
	t.Run("it is a copy", func(t *testing.T) {
		d := declare(t, global, idempo.Operation{}, idemhttp.Rules{Methods: []string{"PUT"}})
		if !slices.Contains(d.Methods, "PUT") {
			t.Error(d.Methods)
		}
		d.Methods[0] = "CHANGED"
	})
	t.Run("a handler that is only inspected", func(t *testing.T) {
		e, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := idemhttp.New(e, global)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Inspect("far", idemhttp.Rules{Key: idemhttp.KeyOptional}, http.NotFoundHandler()); err != nil {
			t.Fatal(err)
		}
		if d := m.Declared()[0]; !d.Inspected || d.Operation.Name != "far" || d.Rules.Key != idemhttp.KeyOptional {
			t.Errorf("%+v", d)
		}
	})
}
