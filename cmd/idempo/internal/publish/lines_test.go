package publish

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/outbox"
)

func delivery(payload []byte, contentType string) outbox.Delivery {
	d := outbox.Delivery{Seq: 7}
	d.Event = outbox.Event{ID: "0190b5b2-0000-7000-8000-000000000001", Source: "/shop/<orders>", Topic: "orders.paid", Key: "o-1\u2028", Type: "OrderPaid", Tenant: "acme",
		ContentType: contentType, Payload: payload, Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}
	return d
}

func TestLine(t *testing.T) {
	t.Parallel()
	line := func(d outbox.Delivery) (string, map[string]any) {
		var b bytes.Buffer
		Line(&b, &d)
		text := b.String()
		if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			t.Errorf("not one line: %q", text)
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err, text)
		}
		return text, m
	}
	text, m := line(delivery([]byte(`{"big":12345678901234567890}`), "application/json"))
	for name, want := range map[string]any{"id": "0190b5b2-0000-7000-8000-000000000001", "source": "/shop/<orders>", "specversion": "1.0", "type": "OrderPaid",
		"time": "2026-01-02T03:04:05.000006Z", "subject": "o-1\u2028", "partitionkey": "o-1\u2028", "datacontenttype": "application/json",
		"sequence": "00000000000000000007", "topic": "orders.paid", "tenant": "acme"} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	if !strings.Contains(text, `"data":{"big":12345678901234567890}`) {
		t.Errorf("the payload is not as it was: %s", text)
	}
	for _, one := range []struct{ payload, contentType string }{{"{\n}", "application/json"}, {"{", "application/json"}, {"plain", "text/plain"}, {`"x"`, "application/octet-stream"},
		{"\xff\x00", ""}, {"", "application/json"}} {
		_, m := line(delivery([]byte(one.payload), one.contentType))
		got, _ := m["data_base64"].(string)
		b, err := base64.StdEncoding.DecodeString(got)
		if _, both := m["data"]; both || err != nil || string(b) != one.payload {
			t.Errorf("%q as %s: %v", one.payload, one.contentType, m)
		}
	}
	for _, contentType := range []string{"", "application/vnd.shop+json", "application/json; charset=utf-8"} {
		if text, _ := line(delivery([]byte("[1]"), contentType)); !strings.HasSuffix(text, `"data":[1]}`+"\n") {
			t.Errorf("%s: %s", contentType, text)
		}
	}
	d := delivery(nil, "")
	d.Headers, d.Trace.Parent, d.Replay = [][2]string{{"x-a", "1"}, {"x-a", "2"}}, "00-1-2-01", "again"
	_, m = line(d)
	_, data := m["data"]
	_, coded := m["data_base64"]
	if data || coded || m["headers"] != `[["x-a","1"],["x-a","2"]]` || m["traceparent"] != "00-1-2-01" || m["idemporeplay"] != "again" {
		t.Errorf("%v", m)
	}
}

// cut takes n writes and fails then.
type cut struct {
	bytes.Buffer
	n int
}

func (c *cut) Write(b []byte) (int, error) {
	if c.n--; c.n < 0 {
		return 0, errors.New("gone")
	}
	return c.Buffer.Write(b)
}

func TestLines(t *testing.T) {
	t.Parallel()
	out := &cut{n: 2}
	broken := 0
	dest, err := Open(t.Context(), "stdout:", Options{Out: out, Broken: func(error) { broken++ }})
	if err != nil {
		t.Fatal(err)
	}
	events := []outbox.Delivery{delivery(nil, ""), delivery(nil, ""), delivery(nil, ""), delivery(nil, "")}
	var classes []outbox.Class
	for range 2 {
		dest.Publish(t.Context(), outbox.PublishParams{Events: events, Done: func(_ int, err error) {
			class := outbox.Class("done")
			if err != nil {
				class = outbox.ClassOf(err)
			}
			classes = append(classes, class)
		}})
	}
	want := "done done unavailable unavailable unavailable unavailable unavailable unavailable"
	var got []string
	for _, c := range classes {
		got = append(got, string(c))
	}
	if strings.Join(got, " ") != want || broken != 1 || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("%v, broken %d times, wrote %q", got, broken, out.String())
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	ok := func(to string) {
		t.Helper()
		if err := Check(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	bad := func(to, want string) {
		t.Helper()
		if err := Check(to); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", to, err, want)
		}
	}
	ok("stdout:")
	ok("null:")
	ok("nats://n1:4222?prefix=shop.")
	ok("amqps://user:secret@mq/shop?exchange=events")
	ok("https://erp.example/in")
	bad("", "is required")
	bad("kafka://k1:9092,k2:9092", "not in this version")
	bad("nats", "not a destination")
	bad("nast://user:secret@h", "did you mean nats:?")
	bad("ftp://secret", "known are: nats:// kafka://")
	bad("stdout:secret", "takes nothing behind the colon")
	bad("nats:secret", "write nats://HOST:PORT")
	bad("http://%zzsecret", "write http://HOST:PORT")
}

// Events reach an HTTP target in a network that is allowed, and no other.
func TestHTTP(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 2)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got <- r }))
	defer target.Close()
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	publish := func(allow ...string) error {
		t.Helper()
		to, err := Open(t.Context(), target.URL+"/in", Options{Allow: allow, Ports: []int{port}})
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close(t.Context())
		done := make(chan error, 1)
		e := outbox.Delivery{Event: outbox.Event{ID: "0190163d-8694-739b-aea5-966c26f8ad91", Source: "/shop", Topic: "orders", Type: "OrderPaid", Payload: []byte("{}")}}
		to.Publish(t.Context(), outbox.PublishParams{Events: []outbox.Delivery{e}, Done: func(_ int, err error) { done <- err }})
		return <-done
	}
	if err := publish("127.0.0.0/8"); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.URL.Path != "/in" || r.Header.Get("Ce-Id") != "0190163d-8694-739b-aea5-966c26f8ad91" {
		t.Errorf("%s %v", r.URL, r.Header)
	}
	if err := publish(); err == nil || len(got) != 0 {
		t.Errorf("a loopback target was reached without being allowed: %v", err)
	}
}
