package idempgx

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// scanner reads a row of the store's own columns: few types, all but text in binary. Looking up a plan for each of forty columns
// costs more than the rest of a replay; what it does not know it leaves to pgx.
func scanner(rows pgx.Rows) func(dest ...any) error {
	return func(dest ...any) error {
		fields, raw := rows.FieldDescriptions(), rows.RawValues()
		if len(fields) != len(dest) || len(raw) != len(dest) {
			return rows.Scan(dest...)
		}
		for i, d := range dest {
			f := &fields[i] // text is the same in both formats
			if f.Format != pgx.BinaryFormatCode && f.DataTypeOID != pgtype.TextOID || !decode(d, f.DataTypeOID, raw[i]) {
				return rows.Scan(dest...)
			}
		}
		return nil
	}
}

// decode puts raw, a binary value of type oid (nil: NULL), into dest. It returns false for what it does not know.
func decode(dest any, oid uint32, raw []byte) bool {
	switch d := dest.(type) {
	case *[]byte:
		if *d = nil; raw != nil {
			*d = append([]byte{}, raw...)
		}
		return oid == pgtype.ByteaOID || raw == nil
	case **string:
		return optional(d, oid, raw, text)
	case **bool:
		return optional(d, oid, raw, boolean)
	case **int64:
		return optional(d, oid, raw, integer)
	case **time.Time:
		return optional(d, oid, raw, stamp)
	case *string:
		return required(d, oid, raw, text)
	case *bool:
		return required(d, oid, raw, boolean)
	case *int64:
		return required(d, oid, raw, integer)
	case *time.Time:
		return required(d, oid, raw, stamp)
	}
	return false
}

// optional sets *d to nil for NULL, of whatever type, else to a new value.
func optional[T any](d **T, oid uint32, raw []byte, parse func(uint32, []byte) (T, bool)) bool {
	if *d = nil; raw == nil {
		return true
	}
	v, ok := parse(oid, raw)
	*d = &v
	return ok
}

func required[T any](d *T, oid uint32, raw []byte, parse func(uint32, []byte) (T, bool)) (ok bool) {
	if raw != nil {
		*d, ok = parse(oid, raw)
	}
	return ok
}

func text(oid uint32, b []byte) (string, bool) { return string(b), oid == pgtype.TextOID }

func boolean(oid uint32, b []byte) (bool, bool) {
	return len(b) == 1 && b[0] != 0, oid == pgtype.BoolOID && len(b) == 1
}

func integer(oid uint32, b []byte) (int64, bool) {
	switch {
	case oid == pgtype.Int8OID && len(b) == 8:
		return int64(binary.BigEndian.Uint64(b)), true
	case oid == pgtype.Int4OID && len(b) == 4:
		return int64(int32(binary.BigEndian.Uint32(b))), true
	case oid == pgtype.Int2OID && len(b) == 2:
		return int64(int16(binary.BigEndian.Uint16(b))), true
	}
	return 0, false
}

// epoch2000 is 2000-01-01 UTC, from which the server counts microseconds.
const epoch2000 = 946_684_800_000_000

// stamp reads a timestamptz; infinity is left to pgx.
func stamp(oid uint32, b []byte) (time.Time, bool) {
	if oid != pgtype.TimestamptzOID || len(b) != 8 {
		return time.Time{}, false
	}
	us := int64(binary.BigEndian.Uint64(b))
	if us == math.MaxInt64 || us == math.MinInt64 {
		return time.Time{}, false
	}
	return time.UnixMicro(us + epoch2000), true
}
