package webhook

import (
	"encoding/json"
	"os"
	"testing"
)

type sample struct {
	ID, Secret, Body string
	Headers          map[string]string
	SignedText       string `json:"signed_text"`
}

// publishedSample is the one vector of which only the signed text is known.
func publishedSample(t *testing.T) sample {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []sample
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.SignedText != "" {
			return s
		}
	}
	t.Fatal("no vector has a signed text")
	return sample{}
}
