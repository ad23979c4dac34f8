package upgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// archive is the source of the library as it was in an earlier commit, without tests, as git archive wrote it: gzip of
//
//	git archive --format=tar COMMIT -- go.mod ':(glob)*.go' internal/backoff internal/fingerprint internal/sqlkit internal/crashtest \
//		inbox operator postgres mysql sqlite ':(exclude)*_test.go' ':(exclude)**/*.md'
const archive = "testdata/previous.tar.gz"

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// unpack calls f for each file of the archive and returns the commit that it was made of.
func unpack(t *testing.T, f func(name string, text []byte)) (commit string) {
	t.Helper()
	packed, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return commit
		}
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			commit = h.PAXRecords["comment"]
		case tar.TypeReg:
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			f(h.Name, text)
		}
	}
}

// previous unpacks the earlier source into a folder.
func previous(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	commit := unpack(t, func(name string, text []byte) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if !filepath.IsLocal(name) {
			t.Fatal(name)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil { //nolint:gosec // source
			t.Fatal(err)
		}
	})
	t.Log("N-1 is commit", commit)
	return dir
}

// build builds the worker with the library whose source is in dir: as one of its packages that is in no folder, with the drivers
// that this module requires.
func build(t *testing.T, dir string) (file string) {
	t.Helper()
	out := t.TempDir()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("testdata/worker/main.go")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(dir, "internal", "upgradeworker", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	name := func(base string) string { return filepath.Join(out, base) }
	text := strings.Replace(string(mod), "module github.com/idempo/idempo/internal/storecheck\n", "module github.com/idempo/idempo\n", 1)
	if err := errors.Join(os.WriteFile(name("go.mod"), []byte(text), 0o600), os.WriteFile(name("go.sum"), sum, 0o600), os.WriteFile(name("overlay.json"), plan, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-modfile", name("go.mod"), "-overlay", name("overlay.json"), "-o", name("worker"), "./internal/upgradeworker")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return name("worker")
}

// What is called an earlier commit is one, where the clone has it.
func TestArchive(t *testing.T) {
	t.Parallel()
	t.Run("[stores/MG4] the archive is the source of the commit that it names", func(t *testing.T) {
		t.Parallel()
		files := map[string][]byte{}
		commit := unpack(t, func(name string, text []byte) { files[name] = text })
		if len(commit) != 40 || len(files) < 100 {
			t.Fatalf("commit %q, %d files", commit, len(files))
		}
		if err := exec.CommandContext(t.Context(), "git", "-C", root(t), "cat-file", "-e", commit).Run(); err != nil { //nolint:gosec // hex
			t.Logf("the clone has no commit %s: nothing to compare the archive with", commit)
			return
		}
		for name, text := range files {
			want, err := exec.CommandContext(t.Context(), "git", "-C", root(t), "show", commit+":"+name).Output() //nolint:gosec // checked in
			if err != nil || !bytes.Equal(text, want) {
				t.Errorf("%s differs from the commit's: %v", name, err)
			}
		}
	})
}
