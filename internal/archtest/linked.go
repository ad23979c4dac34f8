package archtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LinkedModules lists what the command in the folder cmd links beside the standard library and our own modules, on any
// platform: "path version licence", a line each, sorted. A licence it does not know is "unknown". It returns an error when the
// go command fails.
func (t *Tree) LinkedModules(ctx context.Context, cmd string) ([]string, error) {
	type linked struct {
		Module *struct{ Path, Version, Dir string }
	}
	lines := map[string]bool{}
	for _, platform := range platforms() {
		out, err := t.goCommand(ctx, append(t.workspace(), "GOOS="+platform), "list", "-deps", "-json=Module", "./"+cmd)
		if err != nil {
			return nil, fmt.Errorf("list what %s links: %w", cmd, err)
		}
		pkgs, err := decodeAll[linked](out)
		if err != nil {
			return nil, err
		}
		for _, p := range pkgs {
			if p.Module == nil || p.Module.Version == "" {
				continue // the standard library, or ours
			}
			lines[fmt.Sprintf("%s %s %s", p.Module.Path, p.Module.Version, licence(p.Module.Dir))] = true
		}
	}
	return slices.Sorted(maps.Keys(lines)), nil
}

// licence recognises a licence by a sentence that only it has.
func licence(dir string) string {
	names, _ := filepath.Glob(filepath.Join(dir, "[LC][IO][CP][EY][NI]*")) // LICENSE, LICENCE, COPYING; the pattern is valid
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		text := strings.Join(strings.Fields(string(b)), " ")
		for _, l := range []struct{ sentence, name string }{
			{"Apache License Version 2.0", "Apache-2.0"},
			{"Mozilla Public License Version 2.0", "MPL-2.0"},
			{"Mozilla Public License, version 2.0", "MPL-2.0"},
			{"Permission is hereby granted, free of charge", "MIT"},
			{"Permission to use, copy, modify, and/or distribute this software", "ISC"},
			{"Permission to use, copy, modify, and distribute this software", "ISC"},
			{"Neither the name of", "BSD-3-Clause"},
			{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
		} {
			if strings.Contains(text, l.sentence) {
				return l.name
			}
		}
	}
	return "unknown"
}
