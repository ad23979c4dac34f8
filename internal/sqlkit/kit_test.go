package sqlkit_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	ok := func(h [][2]string, want string) {
		t.Helper()
		b := sqlkit.Headers(h)
		if string(b) != want {
			t.Errorf("Headers(%q) = %s, want %s", h, b, want)
		}
		if back, err := sqlkit.ParseHeaders(b); err != nil || !reflect.DeepEqual(back, h) {
			t.Errorf("ParseHeaders(%s) = %q, %v", b, back, err)
		}
	}
	ok(nil, "")
	ok([][2]string{{"A", "1"}, {"A", ""}, {"a", "x\"\\\n"}}, `[["A","1"],["A",""],["a","x\"\\\n"]]`)
	ok([][2]string{{"A", "\xff\x00"}}, `[["A",{"b64":"/wA="}]]`)
	ok([][2]string{{"ü", "\x00"}}, `[["ü",{"b64":"AA=="}]]`)
	bad := func(in string) {
		t.Helper()
		if h, err := sqlkit.ParseHeaders([]byte(in)); err == nil {
			t.Errorf("ParseHeaders(%s) = %q, want an error", in, h)
		}
	}
	bad(`{`)
	bad(`[["a"]]`)
	bad(`[["a",1]]`)
	bad(`[["a",{}]]`)
	bad(`[["a",{"b64":"*"}]]`)
	bad(`[["a","b","c"]]`)
}

func FuzzParseHeaders(f *testing.F) {
	f.Add([]byte(`[["A",{"b64":"/wA="}]]`))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := sqlkit.ParseHeaders(in)
		if err != nil || h == nil {
			return
		}
		if back, err := sqlkit.ParseHeaders(sqlkit.Headers(h)); err != nil || !reflect.DeepEqual(back, h) {
			t.Fatalf("%q came back as %q, %v", h, back, err)
		}
	})
}

func TestReferences(t *testing.T) {
	t.Parallel()
	in := []idempo.Resource{{Type: "order", ID: "1"}, {Type: "\xfe", ID: ""}}
	if back, err := sqlkit.ParseReferences(sqlkit.References(in)); err != nil || !reflect.DeepEqual(back, in) {
		t.Fatal(back, err)
	}
}

// full is a record with every field set, so that a column written in another's place shows.
func full() idempo.Record {
	at := func(n int64) time.Time { return time.UnixMicro(1_700_000_000_000_000 + n).UTC() }
	return idempo.Record{
		Key: idempo.Key{Tenant: "t", Operation: "op", ID: strings.Repeat("k", 32)}, Hash: []byte("h"), Recipe: "r", Detail: []byte("d"),
		State: idempo.StateCompleted, Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe, Surface: "http", Attempt: 3, Generation: 2,
		Token: idempo.Token{1, 2}, Owner: "o",
		Result:   idempo.Result{Status: 201, Header: [][2]string{{"A", "b"}}, Body: []byte{}, Failing: true, Resource: idempo.Resource{Type: "ty", ID: "id"}},
		BodySize: 7, BodySHA256: []byte("s"), BodyKept: true, References: []idempo.Resource{{Type: "a", ID: "b"}},
		DerivedKey: "dk", Snapshot: []byte("sn"), Note: "n", Trace: "tr", Sealed: "se", Format: 1,
		ClaimedAt: at(1), StartedAt: at(2), LeaseUntil: at(3), DueAt: at(4), CreatedAt: at(5), ChangedAt: at(6), CompletedAt: at(7),
		IssuedUntil: at(8), ExpiresAt: at(9), GoneAt: at(10),
	}
}

// set stores v where dest points, as a driver would.
func set(t *testing.T, dest, v any) {
	t.Helper()
	d := reflect.ValueOf(dest).Elem()
	switch {
	case v == nil:
	case d.Kind() == reflect.Pointer:
		p := reflect.New(d.Type().Elem())
		p.Elem().Set(reflect.ValueOf(v).Convert(d.Type().Elem()))
		d.Set(p)
	default:
		d.Set(reflect.ValueOf(v).Convert(d.Type()))
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	for _, rec := range []idempo.Record{full(), {Key: idempo.Key{Tenant: "t", Operation: "op", ID: "k"}, Generation: 1, State: idempo.StatePending}} {
		for name, kind := range map[string]struct {
			row sqlkit.Row
			enc sqlkit.Encoding
		}{
			"micros": {sqlkit.Row{Micros: true}, sqlkit.Encoding{Binary: true}},
			"stamps": {sqlkit.Row{}, sqlkit.Encoding{Time: func(t time.Time) any { return t }}},
		} {
			t.Run(name, func(t *testing.T) {
				row, values := kind.row, kind.enc.Values(rec)
				dest := row.Dest()
				if len(dest) != len(sqlkit.Columns()) || len(values) != len(dest) {
					t.Fatalf("%d columns, %d destinations, %d values", len(sqlkit.Columns()), len(dest), len(values))
				}
				for i, v := range values {
					set(t, dest[i], v)
				}
				got, err := row.Record()
				if err != nil || !reflect.DeepEqual(got, rec) {
					t.Errorf("came back as\n%#v, %v, want\n%#v", got, err, rec)
				}
			})
		}
	}
}

func TestRowOfUnknownWords(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*idempo.Record){
		"state":  func(r *idempo.Record) { r.State = "done" },
		"none":   func(r *idempo.Record) { r.State = "" },
		"guard":  func(r *idempo.Record) { r.Guard = "both" },
		"policy": func(r *idempo.Record) { r.OnCrash = "again" },
		"format": func(r *idempo.Record) { r.Format = 2 },
	} {
		rec, row := full(), sqlkit.Row{Micros: true}
		change(&rec)
		for i, v := range (sqlkit.Encoding{}).Values(rec) {
			set(t, row.Dest()[i], v)
		}
		_, err := row.Record()
		if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "record_unreadable" {
			t.Errorf("%s: %v, want record_unreadable", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	n := sqlkit.Names{Schema: "s", Prefix: "p_", Quote: '"'}
	files := fstest.MapFS{"q/read.sql": {Data: []byte("-- why\n  select {columns r -response_body}\n  from {table records} r -- {name x}\n  where {when $1};\n")}}
	q, err := n.Queries(files, "q", func(arg string) string { return "<" + arg + ">" })
	if err != nil {
		t.Fatal(err)
	}
	got := q["read"]
	if !strings.HasPrefix(got, "select r.tenant_id, ") || !strings.Contains(got, ", null, r.body_size") ||
		!strings.HasSuffix(got, "from \"s\".\"p_records\" r -- \"p_x\"\nwhere <$1>") {
		t.Error(got)
	}
	if _, err := n.Expand("{when $1}", nil); err == nil {
		t.Error("a placeholder nobody fills in was let through")
	}
	if err := n.Check(); err != nil {
		t.Error(err)
	}
	for _, s := range []string{"A", "1a", `a"b`, "a-b", strings.Repeat("a", 41)} {
		if (sqlkit.Names{Schema: s}).Check() == nil || (sqlkit.Names{Prefix: s}).Check() == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	if got := sqlkit.Text("a\x00b\xffc"); got != "a\uFFFDb\uFFFDc" {
		t.Errorf("%q", got)
	}
}
