package sqlkit_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/idempo/idempo/internal/sqlkit"
)

func migrations(t *testing.T) []sqlkit.Migration {
	t.Helper()
	all, err := sqlkit.Migrations(fstest.MapFS{
		"m/0001_records.sql": {Data: []byte("create table {table records} (id int);\n\n-- down\n-- only while empty: records, audit\ndrop table {table records};\n")},
		"m/0002_more.sql":    {Data: []byte("create index {name more} on {table records} (id);\n")},
	}, "m")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	all := migrations(t)
	if len(all) != 2 || all[0].File() != "0001_records.sql" || !reflect.DeepEqual(all[0].Empty, []string{"records", "audit"}) || all[1].Down != "" {
		t.Fatalf("%+v", all)
	}
	if strings.Contains(all[0].Up, "drop") || !strings.Contains(all[0].Down, "drop") {
		t.Errorf("%+v", all[0])
	}
	bad := func(name string) {
		t.Helper()
		if _, err := sqlkit.Migrations(fstest.MapFS{"m/" + name: {Data: []byte("x")}}, "m"); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	bad("0002_gap.sql")
	bad("1_short.sql")
	bad("0001_Name.sql")
	bad("0001_name.txt")
}

// Indexes of tables in use are made outside of a transaction, unless the database is new.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	all, err := sqlkit.Migrations(fstest.MapFS{
		"m/0001_records.sql":   {Data: []byte("create table {table records} (id int);\n")},
		"m/0002_add_index.sql": {Data: []byte("-- concurrently\n-- Why.\ncreate index concurrently if not exists {name a} on {table records} (id);\ncreate index concurrently if not exists {name b} on {table records} (id);\n\n-- down\ndrop index {name a};\n")},
	}, "m")
	if err != nil {
		t.Fatal(err)
	}
	if m := all[1]; len(m.Indexes) != 2 || strings.Contains(m.Up, "index concurrently") || !strings.Contains(m.Up, "create index if not exists {name b}") || all[0].Indexes != nil {
		t.Fatalf("%+v", m)
	}
	l := sqlkit.Ledger{All: all, Names: sqlkit.Names{Quote: '"'}, Record: "record($1, $2, $3)", Concurrently: func(context.Context, []string) error { return nil }}
	later, err := l.Script(1, 0, "begin;\n", "commit;\n")
	if err != nil || !strings.Contains(later, "create index concurrently if not exists \"b\" on \"records\" (id);\nbegin;\nrecord(") {
		t.Errorf("%v, %s", err, later)
	}
	fresh, err := l.Script(0, 0, "begin;\n", "commit;\n")
	if err != nil || strings.Contains(fresh, "index concurrently") {
		t.Errorf("%v, %s", err, fresh)
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	all := migrations(t)
	a := func(v int, sum string) sqlkit.Applied { return sqlkit.Applied{Version: v, Name: "x", SHA256: sum} }
	if todo, err := sqlkit.Pending(all, nil); err != nil || len(todo) != 2 {
		t.Error(todo, err)
	}
	if todo, err := sqlkit.Pending(all, []sqlkit.Applied{a(1, all[0].SHA256)}); err != nil || len(todo) != 1 || todo[0].Version != 2 {
		t.Error(todo, err)
	}
	bad := func(say string, applied ...sqlkit.Applied) {
		t.Helper()
		if _, err := sqlkit.Pending(all, applied); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want %q", err, say)
		}
	}
	bad("0001_records.sql was changed", a(1, "other"))
	bad("newer than this release", a(1, all[0].SHA256), a(2, all[1].SHA256), a(3, "z"))
	bad("are recorded", a(2, all[1].SHA256))
	newer := append([]sqlkit.Applied{a(1, all[0].SHA256), a(2, all[1].SHA256)}, sqlkit.Applied{Version: 3, Name: "add_more", SHA256: "z"})
	if todo, err := sqlkit.Pending(all, newer); err != nil || len(todo) != 0 {
		t.Error("a newer version that only adds:", todo, err)
	}
	bad("newer than this release", append(newer, a(4, "z"))...)
	bad("are recorded", newer[0], newer[2])
}

func TestRequired(t *testing.T) {
	t.Parallel()
	adds, changes := sqlkit.Migration{Name: "add_table"}, sqlkit.Migration{Name: "address"}
	if sqlkit.Required(nil) || sqlkit.Required([]sqlkit.Migration{adds, adds}) || !sqlkit.Required([]sqlkit.Migration{adds, changes}) {
		t.Error("what only adds is not required, all else is")
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	l := sqlkit.Ledger{
		All: migrations(t), Names: sqlkit.Names{Schema: "s", Prefix: "p_", Quote: '"'},
		Record: "insert into {table migrations} (version, name, sha256) values ($1, $2, $3)",
	}
	got, err := l.Script(1, 0, "begin;\n", "commit;\n")
	want := "-- 0002_more.sql\nbegin;\ncreate index \"p_more\" on \"s\".\"p_records\" (id);\n" +
		"insert into \"s\".\"p_migrations\" (version, name, sha256) values (2, 'more', '" + l.All[1].SHA256 + "');\ncommit;\n\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	for _, p := range [][2]int{{-1, 0}, {2, 1}, {0, 3}} {
		if _, err := l.Script(p[0], p[1], "", ""); err == nil {
			t.Error(p, "was accepted")
		}
	}
}
