package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// attempt is one try of a call as the client saw it.
type attempt struct {
	status  int    // 0: no answer
	verdict string // what idempo said about it; "" without idempo
}

func (a attempt) final() bool {
	return a.status != 0 && a.status < 500 && a.status != http.StatusConflict
}

// request is one intent of a client.
type request struct {
	url    string
	key    string
	amount int64
	header string // of an accident; "" for none
}

// send tries once. Every try has a connection of its own, so that nothing but this client repeats a request.
func (r request) send(ctx context.Context) attempt {
	body := fmt.Sprintf(`{"amount":%d}`, r.amount)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/payments", strings.NewReader(body))
	if err != nil {
		return attempt{}
	}
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", r.key)
	if r.header != "" {
		req.Header.Set(r.header, "1")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return attempt{verdict: "no_answer"}
	}
	defer resp.Body.Close()
	a := attempt{status: resp.StatusCode, verdict: resp.Header.Get("Idempotency-Status")}
	var problem struct {
		Code string `json:"code"`
	}
	if resp.StatusCode >= 400 && json.NewDecoder(resp.Body).Decode(&problem) == nil && problem.Code == "outcome_unknown" {
		a.verdict = "in_doubt"
	}
	return a
}

// persist is a client with retries: it sends the same request until it has an answer that counts. between runs after a try
// without one, before the next.
func (r request) persist(ctx context.Context, between func()) (tries []attempt) {
	pause := 20 * time.Millisecond
	for ctx.Err() == nil {
		a := r.send(ctx)
		tries = append(tries, a)
		if a.final() {
			return tries
		}
		if between != nil {
			between()
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		pause = min(2*pause, 400*time.Millisecond)
	}
	return tries
}

// words are the verdicts of tries, repetitions left out; without idempo the status stands for itself.
func words(tries []attempt) (out []string) {
	for _, a := range tries {
		w := a.verdict
		if w == "" {
			w = strconv.Itoa(a.status)
		}
		if len(out) == 0 || out[len(out)-1] != w {
			out = append(out, w)
		}
	}
	return out
}
