package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/idempo/idempo"
)

// codeOf returns the code of the *idempo.Error in err; "" for nil, the error's own text for a foreign one.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e.Code
	}
	return err.Error()
}

// diff names the fields in which two records differ. Record.Now is left out; a nil slice is an empty one except where
// the difference has a meaning: in the body and the snapshot.
func diff(got, want idempo.Record) (names []string) {
	got.Now, want.Now = time.Time{}, time.Time{}
	if !got.Result.Equal(want.Result) {
		names = append(names, fmt.Sprintf("Result is %v, want %v", got.Result, want.Result))
	}
	if (got.Snapshot == nil) != (want.Snapshot == nil) {
		names = append(names, fmt.Sprintf("Snapshot is %#v, want %#v", got.Snapshot, want.Snapshot))
	}
	got.Result, want.Result = idempo.Result{}, idempo.Result{}
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		name := a.Type().Field(i).Name
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue
		}
		if t, ok := x.Interface().(time.Time); ok {
			if u := y.Interface().(time.Time); !t.Equal(u) {
				names = append(names, fmt.Sprintf("%s is %s, want %s", name, t, u))
			}
			continue
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			names = append(names, fmt.Sprintf("%s is %#v, want %#v", name, x.Interface(), y.Interface()))
		}
	}
	return names
}
