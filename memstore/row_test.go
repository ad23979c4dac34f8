package memstore

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// fill sets every field of a record to something that differs from its neighbours, nil and empty included.
func fill(v reflect.Value, rnd *rand.Rand) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		if rnd.IntN(3) > 0 {
			v.Set(reflect.ValueOf(time.UnixMicro(rnd.Int64N(4e15) - 1e15).UTC()))
		}
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, rnd)
		}
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), rnd)
		}
	case v.Kind() == reflect.Slice:
		if n := rnd.IntN(4) - 1; n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(v.Index(i), rnd)
			}
		}
	case v.Kind() == reflect.String:
		b := make([]byte, rnd.IntN(200))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		v.SetString(string(b))
	case v.Kind() == reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case v.CanInt():
		v.SetInt(rnd.Int64() - rnd.Int64())
	case v.CanUint():
		v.SetUint(uint64(rnd.Uint32()) & 0xff)
	default:
		panic("a kind of field that pack does not know: " + v.Type().String())
	}
}

func TestRowKeepsEveryField(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E16] any bytes, empty or absent, come back equal; a new field cannot be forgotten", func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 5000 {
			var r idempo.Record
			fill(reflect.ValueOf(&r).Elem(), rnd)
			r.Now = time.Time{}
			if got := unpack(string(pack(nil, r))); !reflect.DeepEqual(got, r) {
				t.Fatalf("packed and unpacked:\n%#v\nwant\n%#v", got, r)
			}
		}
	})
}

func TestDueRowsComeOldestFirst(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	var d dueRows
	var all []*row
	for range 500 {
		r := &row{due: 1 + rnd.Int64N(100), at: -1}
		all = append(all, r)
		d.add(r)
	}
	d.add(&row{at: -1})
	for _, r := range all[:100] {
		d.remove(r)
		d.remove(r)
	}
	if len(d) != 400 {
		t.Fatalf("%d rows are due, want 400", len(d))
	}
	for last := int64(0); len(d) > 0; {
		r := d[0]
		if r.due < last || r.at != 0 {
			t.Fatalf("due %d after %d at place %d", r.due, last, r.at)
		}
		last = r.due
		d.remove(r)
	}
}
