package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/idempo/idempo/internal/sqlkit"
)

// verify refuses a server, role or schema on which the store's promises do not hold, and returns the store's id.
func (s *Store) verify(ctx context.Context) (string, error) {
	set := map[string]string{}
	st := s.q["check"].with(nil, "records", s.names.Table("records"), "migrations", s.names.Table("migrations"))
	st.Row = func(scan func(...any) error) error {
		var name, setting string
		err := scan(&name, &setting)
		set[name] = setting
		return err
	}
	if err := s.port.Run(ctx, nil, st); err != nil {
		return "", fmt.Errorf("postgres: %w", refused(err))
	}
	if err := server(set, s.o); err != nil {
		return "", err
	}
	if set["schema"] != "true" || set["migrations"] != "true" {
		return "", fmt.Errorf("postgres: schema %s has version 0, this release needs %d: run idempo migrate up", s.names.Schema, latestVersion())
	}
	var applied []sqlkit.Applied
	read := s.q["migrations"].with(nil)
	read.Row = func(scan func(...any) error) error {
		var a sqlkit.Applied
		err := scan(&a.Version, &a.Name, &a.SHA256, &a.At, &a.By)
		applied = append(applied, a)
		return err
	}
	var id string
	meta := s.q["id"].with(nil)
	meta.Row = func(scan func(...any) error) error { return scan(&id) }
	if err := s.port.Run(ctx, nil, read, meta); err != nil {
		return "", fmt.Errorf("postgres: %w", refused(err))
	}
	all, err := sqlkit.Migrations(files, "migrations")
	if err != nil {
		return "", err
	}
	todo, err := sqlkit.Pending(all, applied)
	if err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	if sqlkit.Required(todo) {
		return "", fmt.Errorf("postgres: the schema has version %d, this release needs %d: run idempo migrate up", len(applied), len(all))
	}
	if len(todo) > 0 {
		s.o.warn(fmt.Sprintf("postgres: the schema has version %d, this release knows %d and does without what was added: run idempo migrate up", len(applied), len(all)))
	}
	if err := s.servers.first(func(st Statement) error { return s.port.Run(ctx, nil, st) }, s.q); err != nil {
		return "", fmt.Errorf("postgres: %w", refused(err))
	}
	return id, nil
}

// refused is an error of the server at start-up, with what to do.
func refused(err error) error {
	if h := hint(sqlState(err)); h != "" {
		return fmt.Errorf("%w; hint: %s", shown(err), h)
	}
	return shown(err)
}

func latestVersion() int {
	all, _ := sqlkit.Migrations(files, "migrations")
	return len(all)
}

// server refuses settings of the server by which acknowledged records could be lost, or on which nothing can be written.
func server(set map[string]string, o Options) error {
	var all []error
	refuse := func(format string, args ...any) { all = append(all, fmt.Errorf("postgres: "+format, args...)) }
	if v, _ := strconv.Atoi(set["server_version_num"]); v < 130000 {
		refuse("server_version %s is too old: use PostgreSQL 13 or newer", set["server_version_num"])
	}
	if set["recovery"] == "true" {
		refuse("the server is in recovery, a standby: connect to the primary; with several hosts in the DSN set target_session_attrs=read-write")
	}
	if set["transaction_read_only"] == "on" && set["recovery"] != "true" {
		refuse("default_transaction_read_only is on for role %s: ALTER ROLE %[1]s SET default_transaction_read_only = off", set["role"])
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		if set[name] == "off" {
			refuse("%s is off: acknowledged records can be lost; ALTER SYSTEM SET %[1]s = on, then SELECT pg_reload_conf()", name)
		}
	}
	if set["server_encoding"] != "UTF8" {
		refuse("server_encoding is %s: create the database with ENCODING 'UTF8'", set["server_encoding"])
	}
	if weak := durability(set); weak != "" && o.strict() {
		refuse("%s, or set Strict to false", weak)
	} else if weak != "" {
		o.warn("postgres: " + weak)
	}
	return errors.Join(all...)
}

// durability says how an acknowledged commit can be lost, or "".
func durability(set map[string]string) string {
	level, role := set["synchronous_commit"], set["role"]
	if level == "off" || level == "local" && set["synchronous_standby_names"] != "" {
		return fmt.Sprintf("synchronous_commit is %s for role %s: acknowledged records can be lost; ALTER ROLE %[2]s SET synchronous_commit = on", level, role)
	}
	return ""
}
