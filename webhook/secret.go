package webhook

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Secret is where a secret comes from. It prints as its id and origin, never as its text.
type Secret struct {
	id, env, file, text string
	load                func() (string, error)
	until               time.Time
}

// FromEnv takes a secret from an environment variable, read when a Verifier is made or refreshed.
func FromEnv(id, variable string) Secret { return Secret{id: id, env: variable} }

// FromFile takes a secret from a file of at most 64 KiB. One line end at its end is dropped. [Verifier.Refresh] reads it again.
func FromFile(id, path string) Secret { return Secret{id: id, file: path} }

// FromText takes a secret as it stands. For tests; configuration should name a variable or a file.
func FromText(id, text string) Secret { return Secret{id: id, text: text} }

// FromFunc takes a secret from anywhere else; origin says where, for people. load's error must not hold the secret.
func FromFunc(id, origin string, load func() (string, error)) Secret {
	return Secret{id: id, text: origin, load: load}
}

// Until gives the same secret with an end: from t on it verifies nothing.
func (s Secret) Until(t time.Time) Secret { s.until = t; return s }

// ID is the name under which verdicts and metrics speak of the secret.
func (s Secret) ID() string { return s.id }

// String gives id and origin.
func (s Secret) String() string { return s.id + " (" + s.origin() + ")" }

// GoString gives id and origin.
func (s Secret) GoString() string { return "webhook.Secret{" + s.String() + "}" }

// Format gives id and origin for every verb, so that no verb prints the text.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue gives id and origin.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText gives id and origin.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Secret) origin() string {
	switch {
	case s.load != nil:
		return s.text
	case s.env != "":
		return "environment variable " + s.env
	case s.file != "":
		return "file " + s.file
	}
	return "given as text"
}

const maxSecret = 64 << 10

// read gives the text. Its errors name the origin, never the text.
func (s Secret) read() (string, error) {
	text := s.text
	switch {
	case s.load != nil:
		loaded, err := s.load()
		if err != nil {
			return "", fmt.Errorf("%s cannot be read: %w", s.origin(), err)
		}
		text = loaded
	case s.env != "":
		value, ok := os.LookupEnv(s.env)
		if !ok {
			return "", fmt.Errorf("%s is not set; set it to the secret as the provider shows it", s.origin())
		}
		text = value
	case s.file != "":
		read, err := readSmall(s.file)
		if err != nil {
			return "", err
		}
		text = read
	}
	if strings.TrimSpace(text) == "" {
		return "", fmt.Errorf("%s is empty; put the secret there as the provider shows it", s.origin())
	}
	return text, nil
}

func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = pe.Err
		}
		return "", fmt.Errorf("file %s cannot be read: %w", path, err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("file %s cannot be read: %w", path, err)
	}
	if len(raw) > maxSecret {
		return "", fmt.Errorf("file %s is over 64 KiB; it should hold one secret", path)
	}
	text := strings.TrimSuffix(string(raw), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}
