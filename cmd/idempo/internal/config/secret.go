package config

import "log/slog"

// Secret is text that prints as *** however it is printed. Convert it to a string where it is used.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from JSON, YAML and every other encoder.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
