package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Charge is one line of a ledger: money that moved.
type Charge struct {
	ID     string `json:"id"`
	Ref    string `json:"ref"` // what the caller called it
	Amount int64  `json:"amount"`
}

// ledger is a file of charges. A charge counts once its line is on the disk.
type ledger struct {
	mu   sync.Mutex
	path string
}

// charge appends a charge and returns it.
func (l *ledger) charge(ref string, amount int64) (Charge, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, err := readLedger(l.path)
	if err != nil {
		return Charge{}, err
	}
	c := Charge{ID: fmt.Sprintf("ch_%d", len(before)+1), Ref: ref, Amount: amount}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return Charge{}, err
	}
	err = json.NewEncoder(f).Encode(c)
	return c, errors.Join(err, f.Sync(), f.Close())
}

// readLedger reads every charge; a ledger that is not there is empty.
func readLedger(path string) (out []Charge, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c Charge
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		out = append(out, c)
	}
	return out, lines.Err()
}

func chargesOf(all []Charge, ref string) (out []Charge) {
	for _, c := range all {
		if c.Ref == ref {
			out = append(out, c)
		}
	}
	return out
}
