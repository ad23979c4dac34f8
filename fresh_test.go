package idempo_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// Not parallel inside: a bubble has its own clock.
func TestFreshKeys(t *testing.T) {
	t.Parallel()
	done := func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{Status: 201}, nil }
	engine := func(t *testing.T) (e *idempo.Engine, told *[]idempo.Event) {
		t.Helper()
		told = new([]idempo.Event)
		e, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: digestKeys(), Operations: []idempo.Operation{
			{Name: "pay", Guard: idempo.GuardAtomic}, {Name: "send", Guard: idempo.GuardLeased}},
			Observer: watch(func(ev idempo.Event) {
				if ev.Kind == "fresh_key" {
					*told = append(*told, ev)
				}
			})})
		if err != nil {
			t.Fatal(err)
		}
		return e, told
	}
	call := func(t *testing.T, e *idempo.Engine, tenant, operation, id, input string) {
		t.Helper()
		req := idempo.Request{Key: idempo.Key{Tenant: tenant, Operation: operation, ID: id}, Input: [][]byte{[]byte(input)}, Surface: "http"}
		if _, err := e.Do(t.Context(), req, done); err != nil {
			t.Error(err)
		}
	}
	t.Run("[operations/M17] one request under three new keys in ten minutes is told, and never refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e, told := engine(t)
			for i := range 5 {
				call(t, e, "acme", "pay", fmt.Sprint("k", i), "12 EUR")
				time.Sleep(time.Minute)
			}
			if len(*told) != 3 || (*told)[0].Count != 3 || (*told)[2].Count != 5 {
				t.Fatalf("%d events: %+v", len(*told), *told)
			}
			ev := (*told)[0]
			if ev.Operation != "pay" || ev.Surface != "http" || !strings.HasPrefix(ev.TenantRef, "t_") || len(ev.TenantRef) != 28 || strings.Contains(fmt.Sprintf("%+v", ev), "acme") {
				t.Errorf("%+v", ev)
			}
		})
	})
	t.Run("replays, other requests, other tenants and other operations do not count together", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e, told := engine(t)
			for range 5 {
				call(t, e, "acme", "pay", "one", "12 EUR")
			}
			for i := range 5 {
				call(t, e, "acme", "pay", fmt.Sprint("other", i), fmt.Sprint(i))
			}
			call(t, e, "globex", "pay", "one", "12 EUR")
			call(t, e, "acme", "send", "one", "12 EUR")
			call(t, e, "acme", "pay", "two", "12 EUR")
			if len(*told) != 0 {
				t.Errorf("%+v", *told)
			}
		})
	})
	t.Run("what is older than ten minutes is forgotten", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e, told := engine(t)
			for i := range 9 {
				call(t, e, "acme", "pay", fmt.Sprint("k", i), "12 EUR")
				time.Sleep(5 * time.Minute)
			}
			if len(*told) != 0 {
				t.Errorf("%+v", *told)
			}
		})
	})
	t.Run("any number of different requests take the same memory, and the newest are known", func(t *testing.T) {
		e, told := engine(t)
		for i := range 10_000 {
			call(t, e, "acme", "pay", fmt.Sprint("k", i), fmt.Sprint(i))
		}
		for i := range 3 {
			call(t, e, "acme", "pay", fmt.Sprint("again", i), "0") // long forgotten: counts from one
		}
		if len(*told) != 1 || (*told)[0].Count != 3 {
			t.Errorf("%+v", *told)
		}
	})
}

type traced struct {
	watch
	trace func(ctx context.Context, e idempo.Event) (context.Context, string)
}

func (o traced) Trace(ctx context.Context, e idempo.Event) (context.Context, string) {
	return o.trace(ctx, e)
}

type mark struct{}

func TestTracer(t *testing.T) {
	t.Parallel()
	const of = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		t.Run("the work runs in the tracer's context, and the record keeps its trace: "+string(guard), func(t *testing.T) {
			t.Parallel()
			var seen []idempo.Event
			inner := false
			o := traced{trace: func(ctx context.Context, e idempo.Event) (context.Context, string) {
				if e.Operation != "op" || e.Surface != "run" {
					t.Errorf("asked of %+v", e)
				}
				if e.Kind == "begin" {
					return nil, of
				}
				return context.WithValue(ctx, mark{}, true), ""
			}}
			o.watch = func(e idempo.Event) { seen = append(seen, e) }
			e := newEngine(t, idempo.Config{Observer: o}, idempo.Operation{Name: "op", Guard: guard})
			req := request("op", "k", "1")
			req.Surface, req.Trace = "run", "from a header"
			_, err := e.Do(t.Context(), req, func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				inner, _ = ctx.Value(mark{}).(bool)
				return idempo.Result{Status: 201}, nil
			})
			b, err2 := e.Do(t.Context(), req, nil)
			if err != nil || err2 != nil || !inner || b.Record.Trace != of {
				t.Errorf("%v %v; inside %v; trace %q", err, err2, inner, b.Record.Trace)
			}
			for _, ev := range seen {
				switch {
				case (ev.Kind == "begin" || ev.Kind == "execute" || ev.Kind == "complete") && (ev.At.IsZero() || ev.Took < 0 || ev.TenantRef == ""):
					t.Errorf("%+v", ev)
				case ev.Verdict == idempo.VerdictReplay && ev.Trace != of:
					t.Errorf("the replay does not name the run: %+v", ev)
				}
			}
		})
	}
	t.Run("a tracer that panics or says too much changes nothing", func(t *testing.T) {
		t.Parallel()
		for _, trace := range []func(context.Context, idempo.Event) (context.Context, string){
			func(context.Context, idempo.Event) (context.Context, string) { panic("tracer") },
			func(ctx context.Context, _ idempo.Event) (context.Context, string) {
				return ctx, strings.Repeat("x", 513)
			},
		} {
			e := newEngine(t, idempo.Config{Observer: traced{func(idempo.Event) {}, trace}}, leasedOp)
			req := request("send", "k", "1")
			req.Trace = of
			b, err := e.Do(t.Context(), req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{}, nil })
			if err != nil || b.Record.Trace != of {
				t.Errorf("%v; trace %q", err, b.Record.Trace)
			}
		}
	})
}
