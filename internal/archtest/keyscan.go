package archtest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
)

// The shapes of keys that must not be committed. Tests make their own.
var keyShape = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}` +
	`|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_\w{60}|\bxox[abprs]-[0-9A-Za-z-]{20}` +
	`|\bsk_live_[0-9A-Za-z]{24}|\bAIza[0-9A-Za-z_-]{35}\b`)

// The largest file that is looked at; what is larger is no source.
const maxScanned = 4 << 20

// CheckKeys finds private keys and service tokens in any file under dir. The rule of its findings is key; they name the
// place, never the key.
func CheckKeys(dir string) ([]Finding, error) {
	var fs findings
	err := walk(dir, func(name string) error {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if st, err := os.Stat(file); err != nil || st.Size() > maxScanned {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if at := keyShape.FindIndex(text); at != nil {
			fs.add("key", name, "line %d holds what looks like a secret key", 1+bytes.Count(text[:at[0]], []byte("\n")))
		}
		return nil
	})
	return fs.sorted(), err
}
