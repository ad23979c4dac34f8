package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
)

// sharedFlags are settings that several commands take on the command line.
type sharedFlags struct {
	config, dataDir, store, listen, adminListen, upstream string
}

// setting is a flag with its environment mirror and the key it sets.
type setting struct{ flag, env, path string }

func mirrored() []setting {
	return []setting{
		{"store", "IDEMPO_STORE", "store"},
		{"listen", "IDEMPO_LISTEN", "listen.gateway"},
		{"admin-listen", "IDEMPO_ADMIN_LISTEN", "listen.admin"},
		{"upstream", "IDEMPO_UPSTREAM", "upstream"},
	}
}

// storeFlags adds the flags that say which store is meant.
func (a *app) storeFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&a.flags.config, "config", "", "configuration `file`; else $IDEMPO_CONFIG, ./idempo.yaml, the user's, the system's")
	f.StringVar(&a.flags.store, "store", "", "store `dsn`: a path of an SQLite file, postgres://… or mysql://…")
	f.StringVar(&a.flags.dataDir, "data-dir", "", "`folder` of the SQLite file and the digest key; else $IDEMPO_DATA_DIR, the user's")
}

// dataDir is the folder of data without a path of its own.
func (a *app) dataDir() string {
	if a.flags.dataDir != "" {
		return a.path(a.flags.dataDir)
	}
	if d := a.env("IDEMPO_DATA_DIR"); d != "" {
		return a.path(d)
	}
	if d := a.userDir("XDG_DATA_HOME", ".local/share", "Application Support", "LOCALAPPDATA"); d != "" {
		return filepath.Join(d, "idempo")
	}
	return a.path("idempo-data")
}

// configFile is the configuration file to use, "" where there is none.
func (a *app) configFile() string {
	system := "/etc"
	if a.env("ProgramData") != "" {
		system = a.env("ProgramData")
	}
	return config.Places{
		Flag: a.path(a.flags.config), Env: a.path(a.env("IDEMPO_CONFIG")), WorkDir: a.p.Dir,
		UserDir: a.userDir("XDG_CONFIG_HOME", ".config", "Application Support", "APPDATA"), SystemDir: system,
	}.Find()
}

// source collects where settings come from: flags, their environment mirrors, the configuration file.
func (a *app) source(c *cobra.Command) config.Source {
	s := config.Source{File: a.configFile(), DataDir: a.dataDir(), LookupEnv: a.lookupEnv}
	for _, m := range mirrored() {
		f := c.Flags().Lookup(m.flag)
		switch {
		case f == nil:
		case f.Changed:
			s.Overrides = append(s.Overrides, config.Override{Path: m.path, Value: a.storePath(m.path, f.Value.String()), Origin: "flag --" + m.flag})
			if masked := config.MaskURL(f.Value.String()); m.flag == "store" && strings.Contains(masked, "***") {
				a.err.line("warning: --store holds a password, and process lists show it: put it into IDEMPO_STORE or a configuration file")
			}
		case a.env(m.env) != "":
			s.Overrides = append(s.Overrides, config.Override{Path: m.path, Value: a.storePath(m.path, a.env(m.env)), Origin: "env " + m.env})
		}
	}
	return s
}

func (a *app) storePath(path, value string) string {
	if path == "store" && value != "" && !strings.Contains(value, "://") {
		return a.path(value)
	}
	return value
}

// settings loads the configuration and says its warnings on stderr.
func (a *app) settings(c *cobra.Command) (*config.Settings, error) {
	s, warnings, err := config.Load(a.source(c))
	for _, w := range warnings {
		a.err.line("warning: " + escape(w.String()))
	}
	return s, err
}
