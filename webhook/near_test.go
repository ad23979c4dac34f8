package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestEncodings(t *testing.T) {
	t.Parallel()
	same := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	t.Run("[webhooks/RP11] what other libraries write", func(t *testing.T) {
		same(string(spaced([]byte(`{"a,b:":"\",:","c":[1,2]}`))), `{"a,b:": "\",:", "c": [1, 2]}`)
		same(string(ascii([]byte(`{"é":"😀"}`))), `{"\u00e9":"\ud83d\ude00"}`)
		same(string(unescaped([]byte(`{"\u00e9":"\ud83d\ude00\n\u000a\"\\u0041"}`))), `{"é":"😀\n\u000a\"\\u0041"}`)
		same(string(unescaped([]byte(`\u00`))), `\u00`)
		same(string(unescaped([]byte(`a\`))), `a\`)
		if len(encodings([]byte("no json"))) != 0 || len(encodings([]byte("[]"))) == 0 {
			t.Error("encodings")
		}
	})
}

func FuzzEncodings(f *testing.F) {
	f.Add([]byte(`{"a":"\u00e9\ud83d","b":[1,2]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		encodings(doc) // must not panic
		unescaped(doc)
		spaced(doc)
	})
}

type approves struct{}

func (approves) check(*check) (Verdict, error) { return Verdict{Scheme: "test"}, nil }

func TestParserPanics(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W15] a parser that panics parks the event: its bytes are proven", func(t *testing.T) {
		v, err := NewVerifier(Source{Name: "z", Provider: "zoom", Secrets: []Secret{FromText("1", "k")}})
		if err != nil {
			t.Fatal(err)
		}
		v.scheme = approves{}
		v.keys.Store(nil) // answering the handshake of the body now panics
		req := Request{Method: http.MethodPost, Header: http.Header{}, Body: []byte(`{"event":"endpoint.url_validation"}`)}
		got, err := Accept(v, req, testTime(), 1<<20)
		if err != nil || len(got.Delivery.Events) != 1 || string(got.Delivery.Events[0].Body) != string(req.Body) || got.Delivery.Events[0].Parked != ParkedUnparsable {
			t.Errorf("%+v %v", got, err)
		}
	})
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/RP17] verifying goes on while secrets are read again", func(t *testing.T) {
		var mu sync.Mutex
		text := "first"
		s := Source{Name: "gh", Provider: "github", Secrets: []Secret{FromText("fixed", "k"), FromFunc("changing", "a test", func() (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return text, nil
		})}}
		v, err := NewVerifier(s)
		if err != nil {
			t.Fatal(err)
		}
		out, err := Sign(s, SignParams{Body: []byte("{}"), ID: "1", At: testTime()})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 200 {
					if _, err := Verify(v, out.Request(), testTime()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for i := range 50 {
			mu.Lock()
			text = fmt.Sprint("text ", i)
			mu.Unlock()
			if err := v.Refresh(); err != nil {
				t.Error(err)
			}
		}
		group.Wait()
		v.source.Secrets[1] = FromFunc("changing", "a test", func() (string, error) { return "", fmt.Errorf("gone") })
		if err := v.Refresh(); err == nil || !strings.Contains(err.Error(), "a test cannot be read: gone") {
			t.Errorf("%v", err)
		}
	})
	t.Run("[webhooks/RP17] the last of twenty secrets verifies, and is named", func(t *testing.T) {
		var secrets []Secret
		for i := range 20 {
			secrets = append(secrets, FromText(fmt.Sprint(i), fmt.Sprint("text ", i)))
		}
		v, err := NewVerifier(Source{Name: "st", Provider: "stripe", Secrets: secrets})
		if err != nil {
			t.Fatal(err)
		}
		out, err := Sign(Source{Name: "st", Provider: "stripe", Secrets: secrets[19:]}, SignParams{Body: []byte("{}"), At: testTime()})
		if err != nil {
			t.Fatal(err)
		}
		verdict, err := Verify(v, out.Request(), testTime().Add(time.Second))
		if err != nil || verdict.SecretID != "19" {
			t.Errorf("%+v %v", verdict, err)
		}
	})
}
