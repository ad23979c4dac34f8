package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/database"
)

// build is what the binary knows about itself.
type build struct {
	Version, Commit, Go, OS, Arch string
}

func (a *app) build() build {
	b := build{Version: a.p.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if i, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" {
			b.Version = i.Main.Version
		}
		for _, s := range i.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "show version, commit, Go version and the schema version of each store",
		Example: "idempo version\nidempo version --json",
		RunE: func(*cobra.Command, []string) error {
			b := a.build()
			schemas := schemaVersions()
			if a.json {
				type schema struct {
					Store   string `json:"store"`
					Version int    `json:"version"`
				}
				out := struct {
					Schema  int      `json:"schema"`
					Version string   `json:"version"`
					Commit  string   `json:"commit,omitempty"`
					Go      string   `json:"go"`
					OS      string   `json:"os"`
					Arch    string   `json:"arch"`
					Stores  []schema `json:"stores"`
				}{Schema: 1, Version: b.Version, Commit: b.Commit, Go: b.Go, OS: b.OS, Arch: b.Arch}
				for _, s := range schemas {
					out.Stores = append(out.Stores, schema{s.store, s.version})
				}
				return a.out.object(out)
			}
			a.out.printf("idempo %s\n", b.Version)
			if b.Commit != "" {
				a.out.printf("commit %s\n", b.Commit)
			}
			a.out.printf("%s %s/%s\n", b.Go, b.OS, b.Arch)
			for _, s := range schemas {
				a.out.printf("schema %-8s %d\n", s.store, s.version)
			}
			return nil
		},
	}
	c.Flags().Bool("json", false, "one JSON object")
	return c
}

// schemaVersion is the newest schema that this binary knows of a store.
type schemaVersion struct {
	store   string
	version int
}

func schemaVersions() []schemaVersion {
	return []schemaVersion{{"sqlite", database.SQLiteVersion()}, {"postgres", database.PostgresVersion()}, {"mysql", database.MySQLVersion()}}
}
