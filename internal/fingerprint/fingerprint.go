package fingerprint

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Append appends fields to b, each led by its length, and returns the extended slice.
func Append[T string | []byte](b []byte, fields ...T) []byte {
	for _, f := range fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

// Sum is SHA-256 over fields.
func Sum(fields ...string) [sha256.Size]byte {
	var scratch [512]byte
	return sha256.Sum256(Append(scratch[:0], fields...))
}

// Derive returns UUID text made of SHA-256 over `idempo-derive-1` and fields: the first 16 bytes, shaped as version 4,
// since some APIs demand it. No secret goes in, so that rotating one never changes a key.
func Derive(fields ...string) string {
	var scratch [512]byte
	sum := sha256.Sum256(Append(Append(scratch[:0], "idempo-derive-1"), fields...))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var out [36]byte
	hex.Encode(out[:8], b[:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:], b[10:])
	return string(out[:])
}

// Subkey derives the 32-byte key for one purpose and tenant from a secret by HKDF-SHA-256, so that equal inputs of two
// tenants or purposes have unrelated digests.
func Subkey(secret []byte, purpose, tenant string) ([]byte, error) {
	info := Append(nil, purpose, tenant)
	return hkdf.Key(sha256.New, secret, nil, string(info), sha256.Size)
}
