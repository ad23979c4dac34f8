package webhook

import (
	"encoding/json"
	"os"
	"testing"
)

// sampled is the vector of the published file that pick chooses.
func sampled(t *testing.T, pick func(*Vector) bool) *Vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []Vector
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if pick(&list[i]) {
			return &list[i]
		}
	}
	t.Fatal("no such vector")
	return nil
}
