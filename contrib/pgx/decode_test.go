package idempgx

import (
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	m := pgtype.NewMap()
	encode := func(oid uint32, v any) []byte {
		b, err := m.Encode(oid, pgtype.BinaryFormatCode, v, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var s *string
	var b []byte
	var n *int64
	var f *bool
	var at *time.Time
	var now time.Time
	moment := time.Date(2026, 2, 28, 23, 59, 59, 123456000, time.UTC)
	for _, c := range []struct {
		name string
		dest any
		oid  uint32
		raw  []byte
		same func() bool
	}{
		{"text", &s, pgtype.TextOID, []byte("añ"), func() bool { return *s == "añ" }},
		{"text null", &s, pgtype.TextOID, nil, func() bool { return s == nil }},
		{"bytes", &b, pgtype.ByteaOID, []byte{0, 255}, func() bool { return string(b) == "\x00\xff" }},
		{"empty bytes are not null", &b, pgtype.ByteaOID, []byte{}, func() bool { return b != nil && len(b) == 0 }},
		{"bytes null", &b, pgtype.ByteaOID, nil, func() bool { return b == nil }},
		{"int8", &n, pgtype.Int8OID, encode(pgtype.Int8OID, int64(math.MinInt64)), func() bool { return *n == math.MinInt64 }},
		{"int4", &n, pgtype.Int4OID, encode(pgtype.Int4OID, int32(-7)), func() bool { return *n == -7 }},
		{"int2", &n, pgtype.Int2OID, encode(pgtype.Int2OID, int16(-7)), func() bool { return *n == -7 }},
		{"bool", &f, pgtype.BoolOID, encode(pgtype.BoolOID, true), func() bool { return *f }},
		{"time", &at, pgtype.TimestamptzOID, encode(pgtype.TimestamptzOID, moment), func() bool { return at.Equal(moment) }},
		{"time not null", &now, pgtype.TimestamptzOID, encode(pgtype.TimestamptzOID, moment.AddDate(-60, 0, 0)), func() bool { return now.Equal(moment.AddDate(-60, 0, 0)) }},
	} {
		if !decode(c.dest, c.oid, c.raw) || !c.same() {
			t.Errorf("%s: not read as pgx writes it", c.name)
		}
	}
	for name, bad := range map[string]bool{
		"another type":  decode(&s, pgtype.Int8OID, []byte("x")),
		"short integer": decode(&n, pgtype.Int8OID, []byte{1}),
		"short time":    decode(&at, pgtype.TimestamptzOID, []byte{1}),
		"infinity":      decode(&at, pgtype.TimestamptzOID, encode(pgtype.TimestamptzOID, pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true})),
		"null":          decode(&now, pgtype.TimestamptzOID, nil),
		"unknown":       decode(new(int), pgtype.Int8OID, []byte{1}),
	} {
		if bad {
			t.Errorf("%s: must be left to pgx", name)
		}
	}
}
