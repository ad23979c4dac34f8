package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/idempo/idempo/outbox"
)

func TestIDFor(t *testing.T) {
	t.Parallel()
	if got := outbox.IDFor("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "python.org"); got != "886313e1-3b8a-5372-9b90-0c9aee199e5d" { // as Python's uuid5
		t.Errorf("%s", got)
	}
	a, b := outbox.IDFor("orders", "order 7 paid"), outbox.IDFor("orders", "order 8 paid")
	if a == b || a != outbox.IDFor("orders", "order 7 paid") || a == outbox.IDFor("invoices", "order 7 paid") {
		t.Errorf("%s, %s", a, b)
	}
}

func TestPartitionOf(t *testing.T) {
	t.Parallel()
	seen := map[int]int{}
	for i := range 64 * 200 {
		p := outbox.PartitionOf("default", fmt.Sprint("order-", i), "")
		if p < 0 || p >= outbox.Partitions {
			t.Fatal(p)
		}
		seen[p]++
	}
	for p := range outbox.Partitions {
		if seen[p] < 100 || seen[p] > 320 {
			t.Errorf("partition %d has %d of 12,800 keys", p, seen[p])
		}
	}
	if outbox.PartitionOf("t", "k", "a") != outbox.PartitionOf("t", "k", "b") {
		t.Error("a key has two partitions")
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		err  error
		want outbox.Class
	}{
		{boom, outbox.ClassFailed},
		{outbox.Refused(boom), outbox.ClassRefused},
		{outbox.NoRoute(boom), outbox.ClassNoRoute},
		{fmt.Errorf("nats: %w", outbox.Unavailable(boom)), outbox.ClassUnavailable},
		{outbox.Unanswered(boom), outbox.ClassUnanswered},
		{outbox.After(time.Minute, outbox.Later(boom)), outbox.ClassLater},
		{outbox.Later(outbox.After(time.Minute, boom)), outbox.ClassLater},
		{context.DeadlineExceeded, outbox.ClassUnanswered},
		{outbox.Unavailable(context.DeadlineExceeded), outbox.ClassUnavailable},
		{context.Canceled, outbox.ClassFailed},
	} {
		if got := outbox.ClassOf(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
		if errors.Is(c.err, boom) == errors.Is(c.err, context.DeadlineExceeded) && !errors.Is(c.err, context.Canceled) {
			t.Errorf("%v lost its cause", c.err)
		}
	}
	f, ok := errors.AsType[*outbox.Failure](outbox.Later(outbox.After(time.Minute, boom)))
	if !ok || f.After != time.Minute || f.Error() != "boom" {
		t.Errorf("%+v", f)
	}
	for _, mark := range []func(error) error{outbox.Refused, outbox.NoRoute, outbox.Unavailable, outbox.Unanswered, outbox.Later} {
		if mark(nil) != nil || outbox.After(1, nil) != nil {
			t.Error("a mark of nothing")
		}
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("Tokyo", 9*3600))
	d := outbox.Delivery{Event: outbox.Event{ID: "886313e1-3b8a-5372-9b90-0c9aee199e5d", Source: "/shop", Topic: "orders.paid", Key: "o-7", Type: "OrderPaid",
		Tenant: "acct_7", ContentType: "text/plain", Headers: [][2]string{{"x-a", "1"}, {"x-a", "2"}}, Time: at}, Seq: 42,
		Trace: outbox.Trace{Parent: "00-1-2-01", State: "a=b", Correlation: "c-1", KeyRef: "k_2"}, Replay: "r-1"}
	want := [][2]string{{"id", d.ID}, {"source", "/shop"}, {"specversion", "1.0"}, {"type", "OrderPaid"}, {"time", "2026-01-01T18:04:05.000006Z"},
		{"subject", "o-7"}, {"partitionkey", "o-7"}, {"datacontenttype", "text/plain"}, {"sequence", "00000000000000000042"}, {"topic", "orders.paid"},
		{"tenant", "acct_7"}, {"keyref", "k_2"}}
	if got := d.Attributes(); !slices.Equal(got, want) {
		t.Errorf("attributes %q", got)
	}
	want = [][2]string{{"x-a", "1"}, {"x-a", "2"}, {"traceparent", "00-1-2-01"}, {"tracestate", "a=b"}, {"correlation-id", "c-1"}, {"idempo-replay", "r-1"}}
	if got := d.Extra(); !slices.Equal(got, want) {
		t.Errorf("extra %q", got)
	}
	d = outbox.Delivery{Event: outbox.Event{ID: "1", Source: "/shop", Topic: "t", Type: "T", Tenant: "d"}, Seq: 1}
	for _, a := range append(d.Attributes(), d.Extra()...) {
		if a[1] == "" || slices.Contains([]string{"subject", "partitionkey", "datacontenttype", "keyref", "traceparent", "idempo-replay"}, a[0]) {
			t.Errorf("an attribute of nothing: %q", a)
		}
	}
}

func TestBell(t *testing.T) {
	t.Parallel()
	var b outbox.Bell
	b.Ring() // nobody is there
	one, stopOne := b.Listen()
	two, stopTwo := b.Listen()
	b.Ring()
	b.Ring()
	for _, c := range []<-chan struct{}{one, two} {
		<-c
		select {
		case <-c:
			t.Error("two rings that nobody had heard were two")
		default:
		}
	}
	stopOne()
	b.Ring()
	<-two
	select {
	case <-one:
		t.Error("rung after stop")
	default:
	}
	stopTwo()
}
