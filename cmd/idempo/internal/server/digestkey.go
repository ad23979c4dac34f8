package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/operator"
)

// digestKeyFile stands in the data folder where no key is configured.
const digestKeyFile = "digest.key"

// keyring is the digest keys of a process and where they came from.
type keyring struct {
	secrets []idempo.Secret
	file    string // of a key that idempo made; empty: configured
	fresh   []byte // content of a key file that is still to be written
}

// digestKeys returns the configured keys, else the one in the data folder, else a new one that commit writes there. A file that
// cannot be a key is an error; it is never replaced, since every record stands under it.
func digestKeys(c *config.Settings) (keyring, error) {
	if len(c.Keys) > 0 {
		return keyring{secrets: secrets(c.Keys)}, nil
	}
	file := DigestKeyFile(c)
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b = []byte(newDigestKey())
		s, err := parseDigestKey(file, b)
		return keyring{secrets: []idempo.Secret{s}, file: file, fresh: b}, err
	case err != nil:
		return keyring{}, fmt.Errorf("digest key: %w", err)
	}
	s, err := parseDigestKey(file, b)
	return keyring{secrets: []idempo.Secret{s}, file: file}, err
}

func secrets(keys []config.Key) (out []idempo.Secret) {
	for _, k := range keys {
		out = append(out, idempo.Secret{ID: k.ID, Value: []byte(k.Value)})
	}
	return out
}

// newDigestKey is a line "ID SECRET": the id tells keys of different folders apart.
func newDigestKey() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	secret := hex.EncodeToString(b[:])
	return "made-" + mark([]byte(secret))[:8] + " " + secret + "\n"
}

func parseDigestKey(file string, b []byte) (idempo.Secret, error) {
	id, secret, ok := strings.Cut(strings.TrimSpace(string(b)), " ")
	if !ok || len(secret) < 32 || id == "" {
		return idempo.Secret{}, fmt.Errorf("digest key: %s is not a key file of idempo: put back the one that the records were made with", file)
	}
	return idempo.Secret{ID: id, Value: []byte(secret)}, nil
}

// commit writes a new key with mode 0600, all or nothing. It reports whether this process wrote it: another that started at the
// same moment may have been first, and then its key counts and is to be read again.
func (k keyring) commit() (bool, error) {
	if k.fresh == nil {
		return true, nil
	}
	made, err := writeOnce(k.file, k.fresh)
	if err != nil {
		return false, fmt.Errorf("digest key: %w", err)
	}
	return made, nil
}

// params is what a store may see of the keys.
func (k keyring) params() operator.DigestKeysParams {
	p := operator.DigestKeysParams{Made: k.file != ""}
	for _, s := range k.secrets {
		p.Keys = append(p.Keys, operator.DigestKey{ID: s.ID, Mark: mark(s.Value)})
	}
	return p
}

// mark tells two secrets apart and shows neither: half of an HMAC over a constant.
func mark(secret []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("idempo digest key mark"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// refusal words what does not fit; nil if everything does.
func refusal(k operator.DigestKeys) error {
	var lines []string
	for _, m := range k.Missing {
		lines = append(lines, fmt.Sprintf("digest key %q is missing, %s records need it; add it at the end of security.digest_keys", m.ID, thousands(m.Records)))
	}
	for _, id := range k.Changed {
		lines = append(lines, fmt.Sprintf("digest key %q has another value than the one this store's records were made with; put the old one back, and give the new one another id", id))
	}
	for _, id := range k.Foreign {
		lines = append(lines, fmt.Sprintf("the records of this store stand under digest key %q, which this process does not have: copy %s from where it was made, or name it in security.digest_keys", id, digestKeyFile))
	}
	if len(lines) == 0 {
		return nil
	}
	return &Refused{Code: "digest_key_missing", Text: strings.Join(lines, "\n")}
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Refused is a start that would not be safe: the schema, a digest key or the identity of the store does not fit.
type Refused struct {
	Code string // schema_old schema_new digest_key_missing
	Text string
	Hint string // the command that helps
}

// Error says what does not fit.
func (r *Refused) Error() string { return r.Text }

// DigestKeys returns the digest keys of the settings: the configured ones, or the one in the data folder. Nothing is made; where
// there is none it is an error that says so.
func DigestKeys(c *config.Settings) ([]idempo.Secret, error) {
	k, err := digestKeys(c)
	if err == nil && k.fresh != nil {
		err = fmt.Errorf("no digest key: security.digest_keys is empty, and there is no %s", k.file)
	}
	return k.secrets, err
}

// EncryptionKeys returns the encryption keys of the settings, none where stored answers are in clear.
func EncryptionKeys(c *config.Settings) []idempo.Secret { return secrets(c.Encrypt.Keys) }

// DigestKeyFile is where a digest key stands that nobody configured.
func DigestKeyFile(c *config.Settings) string { return filepath.Join(c.DataDir, digestKeyFile) }
