package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Places is where a configuration file and the data folder are looked for. The caller fills it from flags and environment.
type Places struct {
	Flag      string // --config
	Env       string // $IDEMPO_CONFIG
	WorkDir   string // holds idempo.yaml
	UserDir   string // the user's folder for configuration; empty: none
	SystemDir string // the machine's; empty: none
}

// Find returns the configuration file to use: the flag's, the environment's, else the first that exists of ./idempo.yaml,
// the user's and the system's idempo/idempo.yaml. It returns "" where there is none. A named file is returned even if it is
// missing: reading it then says so.
func (p Places) Find() string {
	if p.Flag != "" {
		return p.Flag
	}
	if p.Env != "" {
		return p.Env
	}
	candidates := []string{filepath.Join(p.WorkDir, "idempo.yaml")}
	if p.WorkDir == "" {
		candidates[0] = "idempo.yaml"
	}
	for _, dir := range []string{p.UserDir, p.SystemDir} {
		if dir != "" {
			candidates = append(candidates, filepath.Join(dir, "idempo", "idempo.yaml"))
		}
	}
	for _, c := range candidates {
		if _, err := os.Stat(c); !errors.Is(err, fs.ErrNotExist) {
			return c
		}
	}
	return ""
}
