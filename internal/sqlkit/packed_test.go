package sqlkit_test

import (
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// What a database hands out as {packed} is a row again; the kit reads every record of SQLite that way. A row that somebody
// else has written over is unreadable, whatever stands in it.
func TestUnpack(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("6b", 32)
	fields := make([]string, len(sqlkit.Columns())-1)
	fields[0], fields[1], fields[2], fields[3] = "61", "6F70", "X'"+key+"'", "NULL"
	fields[4], fields[6], fields[7] = "X''", "NULL", "636F6D706C65746564"
	read := func(text string) (idempo.Record, error) {
		var row sqlkit.Row
		if err := row.Unpack(text, []byte("body")); err != nil {
			return idempo.Record{}, err
		}
		return row.Record()
	}
	rec, err := read(strings.Join(fields, "|"))
	if err != nil || rec.Key != (idempo.Key{Tenant: "a", Operation: "op", ID: strings.Repeat("k", 32)}) || rec.State != idempo.StateCompleted || string(rec.Result.Body) != "body" {
		t.Errorf("%+v, %v", rec, err)
	}
	if rec.Hash == nil || len(rec.Hash) != 0 || rec.Detail != nil || !rec.CreatedAt.IsZero() {
		t.Errorf("none and empty: %#v %#v", rec.Hash, rec.Detail)
	}
	for what, text := range map[string]string{
		"an odd digit":  strings.Replace(strings.Join(fields, "|"), "|636F6D", "|636F6", 1),
		"no blob":       strings.Replace(strings.Join(fields, "|"), "X''", "'text'", 1),
		"half a blob":   strings.Replace(strings.Join(fields, "|"), "X''", "X'6'", 1),
		"no number":     strings.Join(fields, "|") + "x",
		"a column more": strings.Join(fields, "|") + "|1",
	} {
		_, err := read(text)
		var e *idempo.Error
		if e, _ = err.(*idempo.Error); e == nil || e.Code != "record_unreadable" || e.KeyRef != rec.Ref() {
			t.Errorf("%s: %v", what, err)
		}
	}
}
